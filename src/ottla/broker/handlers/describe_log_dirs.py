"""DescribeLogDirs, versions 1 to 5: what lies in which log directory (KIP-113, KIP-827)."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.log.log import Log
from ottla.log.store.log_move import LogMove
from ottla.log.store.log_store import parent_of
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.steps import Steps
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(
    node: Node, request: DescribeLogDirsRequest, context: RequestContext
) -> Steps[DescribeLogDirsResponse]:
    """Return every log directory with the partitions asked for, or with all."""
    by_dir: dict[str, dict[str, list[DescribeLogDirsPartition]]] = {
        log_dir: {} for log_dir in node.config.storage.log_dirs
    }
    started = node.started_log_moves
    moves = {} if started is None else started.by_name()
    if request.topics is None:
        logs = list(node.store)
    else:
        logs = yield from _asked_logs(node, request.topics)
    for log in logs:
        topic, index = log.topic_partition
        shown = DescribeLogDirsPartition(partition_index=index, partition_size=log.size)
        by_dir[parent_of(log)].setdefault(topic, []).append(shown)
        move = moves.get(log.topic_partition)
        if move is not None:
            by_dir[move.target].setdefault(topic, []).append(_future(index, move))
        yield
    return DescribeLogDirsResponse(
        results=[_result(node, log_dir, topics) for log_dir, topics in by_dir.items()]
    )


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


def _future(index: int, move: LogMove) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=index,
        partition_size=move.future.size,
        offset_lag=move.lag,
        is_future_key=True,
    )


def _result(
    node: Node, log_dir: str, topics: dict[str, list[DescribeLogDirsPartition]]
) -> DescribeLogDirsResult:
    if log_dir in node.store.offline_dirs:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=log_dir)
    try:
        total, usable = node.ports.files.free_bytes(log_dir)
    except OSError:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=log_dir)
    return DescribeLogDirsResult(
        log_dir=log_dir,
        topics=LazyList(_topic, list(topics.items())),
        total_bytes=total,
        usable_bytes=usable,
    )


def _topic(topic: tuple[str, list[DescribeLogDirsPartition]]) -> DescribeLogDirsTopic:
    name, partitions = topic
    return DescribeLogDirsTopic(name=name, partitions=partitions)
