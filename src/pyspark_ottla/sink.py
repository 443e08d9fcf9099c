"""The sink: `df.write.format("ottla")` and `df.writeStream.format("ottla")`.

At least once: a task that fails after some of its rows were stored is run again by Spark with
all of them, and so is a micro-batch after a restart. Within a task the idempotent producer
stores each row once, in order within its partition.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pyspark_ottla.modules import set_modules_aside
from pyspark_ottla.option_values import OptionError
from pyspark_ottla.sink_options import sink_settings
from pyspark_ottla.sink_schema import check_schema
from pyspark_ottla.sink_settings import SinkSettings

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger(__name__)


@dataclass
class Written(WriterCommitMessage):
    """What one task stored: rows by topic, and the bytes that were sent for them."""

    rows: dict[str, int]
    bytes: int


def writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> OttlaWriter:
    """The writer of a batch; OptionError for options, columns or modes that cannot be."""
    if overwrite:
        raise OptionError(
            "Save mode Overwrite not allowed for Kafka: a topic is only ever appended to."
            " Use mode('append')"
        )
    settings = _checked(options, schema)
    with settings.client.connect() as client:  # a wrong address is told at once
        client.any(client.deadline("connecting"))
    return OttlaWriter(settings)


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> OttlaStreamWriter:
    """The writer of a stream; in complete mode each batch is appended, as by Spark's own sink."""
    return OttlaStreamWriter(_checked(options, schema))


class OttlaWriter(DataSourceArrowWriter):
    """Writes the rows of a batch query."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Written:
        """Store the rows of one task; returns when all of them are."""
        return _write(self._settings, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks are done and every row is stored."""
        log.info("written: %s", _sum(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Some task failed; what the others stored stays."""
        log.warning("the write failed; these rows stay in their topics: %s", _sum(messages))


class OttlaStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of a streaming query."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Written:
        """Store the rows of one task; returns when all of them are."""
        return _write(self._settings, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Every row of the micro-batch is stored."""
        log.info("batch %d written: %s", batchId, _sum(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """The micro-batch failed and will be written again; what was stored stays."""
        log.warning(
            "batch %d failed and will be written again; these rows stay in their topics: %s",
            batchId,
            _sum(messages),
        )


def _checked(options: Mapping[str, str], schema: StructType) -> SinkSettings:
    settings = sink_settings(options)
    check_schema(schema, settings.topic)
    return settings


def _write(settings: SinkSettings, batches: Iterator[pyarrow.RecordBatch]) -> Written:
    from pyspark_ottla.producers import producer_for  # numba: only where rows are

    with producer_for(settings) as producer:
        for batch in batches:
            producer.add(batch)
        producer.flush()
        written = Written(producer.rows, producer.bytes)
    set_modules_aside("writing")
    return written


def _sum(messages: Sequence[WriterCommitMessage | None]) -> str:
    rows: dict[str, int] = {}
    for message in messages:
        if isinstance(message, Written):
            for topic, count in message.rows.items():
                rows[topic] = rows.get(topic, 0) + count
    return ", ".join(f"{count} to {topic}" for topic, count in rows.items()) or "none"
