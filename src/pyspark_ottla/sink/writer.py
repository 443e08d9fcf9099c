"""The writers that Spark calls: `df.write.format("ottla")` and `df.writeStream.format("ottla")`.

Rows are written at least once. If a task fails after some of its rows were stored, Spark runs it
again with all of its rows. The same happens to a micro-batch after a restart. Within a task the
idempotent producer stores each row once, in order within its partition.
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

from pyspark_ottla.options.option_values import OptionError
from pyspark_ottla.options.sink_options import SinkSettings, sink_settings
from pyspark_ottla.sink.row_schema import check_schema
from pyspark_ottla.worker_gc import freeze_modules

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger(__name__)


@dataclass
class Written(WriterCommitMessage):
    """What one task stored: the number of rows by topic, and the bytes sent for them."""

    rows: dict[str, int]
    bytes: int


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Return the writer of a batch query. Raise OptionError for invalid options or columns."""
    if overwrite:
        raise OptionError(
            "Save mode Overwrite not allowed for Kafka: records can only be appended to a topic."
            " Use mode('append')"
        )
    settings = _checked(options, schema)
    with settings.client.connect() as client:  # report a wrong address now
        client.any(client.deadline("connecting"))
    return BatchWriter(settings)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Return the writer of a streaming query.

    In complete mode every batch is appended, as in Spark's own sink.
    """
    return StreamWriter(_checked(options, schema))


class BatchWriter(DataSourceArrowWriter):
    """Writes the rows of a batch query."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Written:
        """Store the rows of one task. Return when all of them are stored."""
        return _write(self._settings, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log that every row is stored."""
        log.info("written: %s", _sum(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log that a task failed. Rows that were stored are not removed."""
        log.warning("the write failed; these rows stay stored: %s", _sum(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of a streaming query."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Written:
        """Store the rows of one task. Return when all of them are stored."""
        return _write(self._settings, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Log that every row of the micro-batch is stored."""
        log.info("batch %d written: %s", batchId, _sum(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Log that the micro-batch failed. Rows that were stored are not removed."""
        log.warning(
            "batch %d failed and will be written again; these rows stay stored: %s",
            batchId,
            _sum(messages),
        )


def _checked(options: Mapping[str, str], schema: StructType) -> SinkSettings:
    settings = sink_settings(options)
    check_schema(schema, settings.topic)
    return settings


def _write(settings: SinkSettings, batches: Iterator[pyarrow.RecordBatch]) -> Written:
    from pyspark_ottla.sink.producer_pool import producer_for  # loads numba: only on executors

    with producer_for(settings) as producer:
        for batch in batches:
            producer.add(batch)
        producer.flush()
        written = Written(producer.rows, producer.bytes)
    freeze_modules("writing")
    return written


def _sum(messages: Sequence[WriterCommitMessage | None]) -> str:
    rows: dict[str, int] = {}
    for message in messages:
        if isinstance(message, Written):
            for topic, count in message.rows.items():
                rows[topic] = rows.get(topic, 0) + count
    return ", ".join(f"{count} to {topic}" for topic, count in rows.items()) or "none"
