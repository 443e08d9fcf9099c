"""Find a record by its timestamp over the remote and the local part of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.log import Log
from ottla.log.lookup import TimestampOffset
from ottla.log.record_search import RecordSearch
from ottla.model.errors import ApiError, ErrorCode
from ottla.ports import ObjectStoreError
from ottla.records.batch import CorruptBatch
from ottla.replication.partition import Partition
from ottla.tiered.remote_fetch import RemoteLog

if TYPE_CHECKING:
    from ottla.broker.node import Node


def find_by_time(
    node: Node, partition: Partition, log: Log, timestamp_ms: int, search: RecordSearch
) -> TimestampOffset | None:
    """Return the first record with a timestamp at or after the given one, or None.

    Raise ApiError; NotCached if something must be read from the remote tier first;
    NeedsRecordSearch as `Log.offset_for_timestamp` does.
    """
    if log.log_start_offset < log.segments.base_offsets[0]:
        remote = None if node.tier is None else node.tier.remote_log(partition, log)
        if remote is None:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, "the remote segments are not known yet")
        try:
            found = _find_remotely(remote, log, timestamp_ms, search)
        except ObjectStoreError as error:
            assert node.tier is not None
            node.tier.reads_failed(partition, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR) from error
        except CorruptBatch as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE) from error
        if found is not None:
            return found
    return log.offset_for_timestamp(timestamp_ms, search)


def _find_remotely(
    remote: RemoteLog, log: Log, timestamp_ms: int, search: RecordSearch
) -> TimestampOffset | None:
    start = log.log_start_offset
    for segment in remote.candidates(timestamp_ms):
        batches = remote.batches_at(segment, timestamp_ms)
        while (batch := batches.batch) is not None:
            if batch.max_timestamp >= timestamp_ms and batch.last_offset >= start:
                found = search.find(batches, batch, timestamp_ms, start)
                if found is not None:
                    return TimestampOffset(*found, batch.partition_leader_epoch)
            batches.advance()
    return None
