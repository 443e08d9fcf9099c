"""DescribeLogDirs, versions 1 to 5: what lies in which log directory (KIP-113, KIP-827)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.model.errors import ErrorCode
from ottla.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(
    node: Node, request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    """Return every log directory with the partitions asked for, or with all."""
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    by_dir: dict[str, dict[str, list[DescribeLogDirsPartition]]] = {
        log_dir: {} for log_dir in node.config.storage.log_dirs
    }
    for partition in node.topics:
        name = partition.topic.name
        log = partition.log
        if log is None or (wanted is not None and (name, partition.index) not in wanted):
            continue
        log_dir = log.directory.rpartition("/")[0]
        by_dir[log_dir].setdefault(name, []).append(
            DescribeLogDirsPartition(partition_index=partition.index, partition_size=log.size)
        )
    return DescribeLogDirsResponse(
        results=[_result(node, log_dir, topics) for log_dir, topics in by_dir.items()]
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
        topics=[
            DescribeLogDirsTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
        total_bytes=total,
        usable_bytes=usable,
    )
