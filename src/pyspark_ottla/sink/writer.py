"""The writers that Spark calls: `df.write.format("ottla")` and `df.writeStream.format("ottla")`.

Rows are written exactly once: each task writes under a transaction, and the driver commits all of
them when the write is complete (`batch_commit.py`). With deliveryGuarantee=at-least-once there are
no transactions: if a task fails after some of its rows were stored, Spark runs it again with all of
its rows. The same happens to a micro-batch after a restart.
"""

from __future__ import annotations

import logging
import uuid
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
from pyspark_ottla.sink.batch_commit import Prepared, abort_batch, commit_batch, commit_once
from pyspark_ottla.sink.decisions import TaskWrite, read_decision
from pyspark_ottla.sink.row_schema import check_schema
from pyspark_ottla.sink.task_identity import WriteIdentity, current_batch, current_task
from pyspark_ottla.worker_gc import freeze_modules

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger(__name__)


@dataclass
class Written(WriterCommitMessage):
    """What one task stored: the number of rows by topic, the bytes sent, its open transaction."""

    rows: dict[str, int]
    bytes: int
    identity: WriteIdentity | None = None
    prepared: Prepared | None = None


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
        self._identity = (
            WriteIdentity(uuid.uuid4().hex, 0)
            if settings.application is None
            else WriteIdentity(*settings.application)
        )

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Written:
        """Store the rows of one task. Return when all of them are stored."""
        if not self._settings.exactly_once:
            return _write(self._settings, iterator)
        may_be_done = self._settings.application is not None
        return _write_once(self._settings, iterator, self._identity, may_be_done)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make the rows of all tasks visible."""
        if self._settings.exactly_once:
            commit = commit_once if self._settings.application is None else commit_batch
            commit(self._settings, self._identity, _prepared(messages))
        log.info("written: %s", _sum(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort the transactions of all tasks. Without transactions, stored rows stay."""
        if self._settings.exactly_once:
            abort_batch(self._settings, self._identity, _prepared(messages))
        else:
            log.warning("the write failed; these rows stay stored: %s", _sum(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of a streaming query."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Written:
        """Store the rows of one task. Return when all of them are stored."""
        if not self._settings.exactly_once:
            return _write(self._settings, iterator)
        return _write_once(self._settings, iterator, current_batch(), may_be_done=True)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Make the rows of the micro-batch visible."""
        if (identity := _identity(messages)) is not None:
            assert identity.number == batchId
            commit_batch(self._settings, identity, _prepared(messages))
        log.info("batch %d written: %s", batchId, _sum(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Abort the transactions of the micro-batch. Without transactions, stored rows stay."""
        if self._settings.exactly_once:
            if (identity := _identity(messages)) is not None:
                abort_batch(self._settings, identity, _prepared(messages))
            log.info("batch %d failed and will be written again", batchId)
            return
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


def _write_once(
    settings: SinkSettings,
    batches: Iterator[pyarrow.RecordBatch],
    identity: WriteIdentity,
    may_be_done: bool,
) -> Written:
    """Write the rows of a task under a transaction, unless an earlier run has done it."""
    from pyspark_ottla.sink.producer_pool import producer_for  # loads numba: only on executors

    slot, attempt = current_task()
    with producer_for(settings, identity.task_id(slot, attempt)) as producer:
        if may_be_done:
            decision = read_decision(producer.client, identity)
            if decision is not None and not decision.is_left_to(identity.number, slot):
                return Written({}, 0, identity)
        for batch in batches:
            producer.add(batch)
        producer.flush()
        written = Written(producer.rows, producer.bytes, identity)
        if (transaction := producer.transaction) is not None:
            write = TaskWrite(slot, attempt, *transaction.producer[1:])
            places = sorted(transaction.partitions)
            written.prepared = Prepared(write, places, transaction.began_ms)
    freeze_modules("writing")
    return written


def _identity(messages: Sequence[WriterCommitMessage | None]) -> WriteIdentity | None:
    """Return the batch that tasks wrote under transactions, None if there were none."""
    known = {each.identity for each in messages if isinstance(each, Written)} - {None}
    assert len(known) <= 1
    return known.pop() if known else None


def _prepared(messages: Sequence[WriterCommitMessage | None]) -> list[Prepared]:
    found = [each.prepared for each in messages if isinstance(each, Written)]
    return [each for each in found if each is not None]


def _sum(messages: Sequence[WriterCommitMessage | None]) -> str:
    rows: dict[str, int] = {}
    for message in messages:
        if isinstance(message, Written):
            for topic, count in message.rows.items():
                rows[topic] = rows.get(topic, 0) + count
    return ", ".join(f"{count} to {topic}" for topic, count in rows.items()) or "none"
