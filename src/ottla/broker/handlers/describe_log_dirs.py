"""DescribeLogDirs, versions 1 to 5: what lies in which log directory (KIP-113, KIP-827).

From version 2 on, the state of compaction, the size of the remote part and the segments of each log
are there too if the request asks for them (`wire/log_dirs_extension.py`, ADR 23).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.log.damage import DamagedLog
from ottla.log.log import Log
from ottla.log.segment.index_jobs import IndexNotReady
from ottla.log.store.log_move import LogMove
from ottla.log.store.log_store import parent_of
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.steps import Steps
from ottla.wire.lazy_list import LazyList
from ottla.wire.log_dirs_extension import (
    UNKNOWN,
    LogDirsPartition,
    LogDirsRequest,
    LogDirsResponse,
    LogDirsResult,
    LogDirsTopic,
    SegmentState,
)
from ottla.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)

if TYPE_CHECKING:
    from ottla.broker.remote_tier.remote_tier import RemoteTier

REQUEST = LogDirsRequest

_SEGMENTS_A_STEP: Final = 200


def handle(
    node: Node, request: LogDirsRequest, context: RequestContext
) -> Steps[DescribeLogDirsResponse]:
    """Return every log directory with the partitions asked for, or with all."""
    by_dir: dict[str, dict[str, list[LogDirsPartition]]] = {
        log_dir: {} for log_dir in node.config.storage.log_dirs
    }
    started = node.started_log_moves
    moves = {} if started is None else started.by_name()
    if request.topics is None:
        logs = list(node.store)
    else:
        logs = yield from _asked_logs(node, request.topics)
    with_segments, with_details = request.with_segments, request.with_details
    for log in logs:
        topic, index = log.topic_partition
        shown = LogDirsPartition(partition_index=index, partition_size=log.size)
        if with_details and log.config.compacts:
            _add_compaction(node, log, shown)
        if with_details and node.tier is not None and log.config.remote_storage_enable:
            _add_remote(node.tier, log, shown)
        if with_segments:
            shown.segments = yield from _segments_of(log)
        by_dir[parent_of(log)].setdefault(topic, []).append(shown)
        move = moves.get(log.topic_partition)
        if move is not None:
            by_dir[move.target].setdefault(topic, []).append(_future(index, move))
        yield
    results: list[DescribeLogDirsResult] = [
        _result(node, log_dir, topics) for log_dir, topics in by_dir.items()
    ]
    if with_segments or with_details:
        return LogDirsResponse(results=results)
    return DescribeLogDirsResponse(results=results)  # its encoder leaves our additions out


def _asked_logs(node: Node, topics: Iterable[DescribableLogDirTopic]) -> Steps[list[Log]]:
    """Return the logs that the request names, each once."""
    logs: dict[Log, None] = {}
    for topic in topics:
        for index in topic.partitions:
            log = node.store.get(TopicPartition(topic.topic, index))
            if log is not None:
                logs[log] = None
            yield
        yield
    return list(logs)


def _segments_of(log: Log) -> Steps[list[SegmentState]]:
    shown: list[SegmentState] = []
    for each in list(log.segments):
        shown.append(SegmentState(base_offset=each.base_offset, size=each.size))
        if not len(shown) % _SEGMENTS_A_STEP:
            yield
    return shown


def _add_compaction(node: Node, log: Log, shown: LogDirsPartition) -> None:
    """Add the state of a compacted log, as far as it is known without reading much."""
    from ottla.log.cleaner.cleanable import cleanable

    cleaner = node.hosted_logs.cleaning.cleaner
    if cleaner is not None:
        shown.last_clean_ms = cleaner.last_clean_ms.get(log.topic_partition, UNKNOWN)
        shown.uncleanable_reason = cleaner.uncleanable.get(log.topic_partition)
    try:
        found = cleanable(log, node.ports.clock.wall_ms())
    except (IndexNotReady, DamagedLog, OSError):
        return
    shown.first_dirty_offset = found.first_dirty_offset
    shown.clean_bytes = found.clean_bytes
    shown.cleanable_bytes = found.cleanable_bytes


def _add_remote(tier: RemoteTier, log: Log, shown: LogDirsPartition) -> None:
    """Add the state of the remote part of a log."""
    from ottla.tiered.metadata_records import RemotePartition
    from ottla.tiered.remote_cleanable import remote_first_dirty_offset

    topic, index = log.topic_partition
    partition = RemotePartition(topic, log.topic_id, index)
    segments = tier.metadata.segments_of(partition)
    if segments is None:
        return
    shown.remote_bytes = segments.size
    if log.config.compacts:
        try:
            found = remote_first_dirty_offset(log, segments, tier.node.ports.clock.wall_ms())
        except (DamagedLog, OSError):
            return
        shown.remote_first_dirty_offset = found
        reason = tier.uncleanable_reason(partition)
        shown.uncleanable_reason = shown.uncleanable_reason or reason


def _future(index: int, move: LogMove) -> LogDirsPartition:
    return LogDirsPartition(
        partition_index=index,
        partition_size=move.future.size,
        offset_lag=move.lag,
        is_future_key=True,
    )


def _result(node: Node, log_dir: str, topics: dict[str, list[LogDirsPartition]]) -> LogDirsResult:
    if log_dir in node.store.offline_dirs:
        return LogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=log_dir)
    try:
        total, usable = node.ports.files.free_bytes(log_dir)
    except OSError:
        return LogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=log_dir)
    return LogDirsResult(
        log_dir=log_dir,
        topics=LazyList(_topic, list(topics.items())),
        total_bytes=total,
        usable_bytes=usable,
    )


def _topic(topic: tuple[str, list[LogDirsPartition]]) -> LogDirsTopic:
    name, partitions = topic
    return LogDirsTopic(name=name, partitions=[*partitions])
