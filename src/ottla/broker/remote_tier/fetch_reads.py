"""The part of a Fetch that the remote tier answers.

Consumers get records of remote segments. If they must be read from the object store first, the
fetch waits for that, and looks again. Followers do not copy what the tier has: they are told to
build their state from the tier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.codecs.fetch_response import PartitionData
from ottla.log.log import Log
from ottla.log.segment.index_jobs import IndexNotReady
from ottla.model.errors import ApiError, ErrorCode
from ottla.ports import ObjectStoreError
from ottla.replication.fetch_partitions import FetchEntry
from ottla.replication.partition import Partition
from ottla.tiered.not_cached import NotCached

if TYPE_CHECKING:
    from ottla.broker.handlers.fetch import Context


def read_tier(
    context: Context, entry: FetchEntry, partition: Partition, log: Log, room: int, first: bool
) -> PartitionData:
    """Return what a fetch finds at an offset that is in the remote tier only.

    There are no records if they are still to be read. Raise ApiError.
    """
    if context.replica_id >= 0:
        raise ApiError(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
    tier = context.node.tier
    if tier is None:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
    data = PartitionData(
        entry.key,
        entry.index,
        0,
        log.high_watermark,
        log.last_stable_offset,
        log.log_start_offset,
        None,
    )
    remote = tier.remote_log(partition, log)
    if remote is None:
        context.wait_for_tier(entry)
        return data
    offset, max_bytes = entry.fetch_offset, min(entry.max_bytes, room)
    aborted = bytearray()
    try:
        records = remote.read(offset, max_bytes, at_least_one=first)
        if records is not None and context.isolation_level:
            aborted = remote.aborted(offset, records)
    except NotCached as missing:
        context.wait_for_tier(entry)
        missing.then(context.tier_answered)
        return data
    except ObjectStoreError as error:
        tier.reads_failed(partition, error)
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR) from error
    if records is not None:
        tier.metrics.fetches += 1
        tier.metrics.fetched_bytes += records.content.length
        data.records, data.aborted = records.content, aborted
        return data
    if first:  # there is no batch before the local segments
        _read_local_start(context, log, data, max_bytes)
    return data


def _read_local_start(context: Context, log: Log, data: PartitionData, max_bytes: int) -> None:
    """Read from where the local segments begin, with the aborted transactions if they are asked.

    The records are left out until these can be found.
    """
    start = log.segments.base_offsets[0]
    upto = log.last_stable_offset if context.isolation_level else log.high_watermark
    local = log.read(start, max_bytes, upto, at_least_one=True)
    if local is None:
        return
    try:
        if context.isolation_level:
            data.aborted = log.aborted_transactions(start, local, upto)
        data.records = local
    except IndexNotReady:
        return
