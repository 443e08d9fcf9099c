"""AlterReplicaLogDirs, versions 1 and 2: move replicas to other log directories (KIP-113).

For a replica that this broker does not have, the directory is remembered: it is created there if
it comes. The answer is REPLICA_NOT_AVAILABLE until then.
"""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.steps import Steps
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    AlterReplicaLogDirTopicResult,
)


def handle(
    node: Node, request: AlterReplicaLogDirsRequest, context: RequestContext
) -> Steps[AlterReplicaLogDirsResponse]:
    """Begin the moves; answer for each replica whether it has begun. Each is looked at once."""
    codes: dict[str, dict[int, ErrorCode]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            found = codes.setdefault(topic.name, {})
            for index in topic.partitions:
                if index not in found:
                    found[index] = _move(node, topic.name, index, directory.path)
                yield
            yield
        yield
    return AlterReplicaLogDirsResponse(results=LazyList(_topic, list(codes.items())))


def _topic(topic: tuple[str, dict[int, ErrorCode]]) -> AlterReplicaLogDirTopicResult:
    name, codes = topic
    return AlterReplicaLogDirTopicResult(
        topic_name=name, partitions=LazyList(_partition, list(codes.items()))
    )


def _partition(partition: tuple[int, ErrorCode]) -> AlterReplicaLogDirPartitionResult:
    index, code = partition
    return AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)


def _move(node: Node, topic: str, index: int, directory: str) -> ErrorCode:
    try:
        node.log_moves.check_known(directory)  # before the partition, as Kafka does
        try:
            partition = node.topics.partition_named(topic, index)
        except ApiError as error:
            if error.code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise
            node.log_moves.prefer(TopicPartition(topic, index), directory)
            return ErrorCode.REPLICA_NOT_AVAILABLE
        node.log_moves.move(partition, directory)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


def refuse(
    request: AlterReplicaLogDirsRequest, error: ApiError, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Return the error for every replica."""

    def refused(topic: AlterReplicaLogDirTopic) -> AlterReplicaLogDirTopicResult:
        return AlterReplicaLogDirTopicResult(
            topic_name=topic.name,
            partitions=LazyList(
                lambda index: AlterReplicaLogDirPartitionResult(
                    partition_index=index, error_code=error.code
                ),
                topic.partitions,
            ),
        )

    topics = [topic for directory in request.dirs for topic in directory.topics]
    return AlterReplicaLogDirsResponse(results=LazyList(refused, topics))
