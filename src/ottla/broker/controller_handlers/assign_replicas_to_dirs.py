"""AssignReplicasToDirs, version 0: in which log directory a broker has replicas (KIP-858)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.controller_decisions import carry_out, error_fields
from ottla.controller.alter_partition import check_broker
from ottla.controller.brokers import DIRECTORIES_LEVEL, METADATA_VERSION
from ottla.controller.decision import Decision
from ottla.controller.log_directories import (
    AssignedReplica,
    DirectoryAssignment,
    assign_directories,
)
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import ITEMS_A_STEP, Steps, in_steps
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    ResponseDirectoryData,
    ResponsePartitionData,
    ResponseTopicData,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node


def handle(node: Node, request: AssignReplicasToDirsRequest, context: RequestContext) -> None:
    """Note the directories of the replicas; those in a failed one lose their leaders."""
    controller = node.controller
    if not controller.is_active:
        raise ApiError(ErrorCode.NOT_CONTROLLER)
    image = controller.latest_image
    if image.features.get(METADATA_VERSION, 0) < DIRECTORIES_LEVEL:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    check_broker(image, request.broker_id, request.broker_epoch)

    def decide(image: MetadataImage) -> Steps[Decision[AssignedReplica]]:
        assignments = yield from in_steps(lambda each: each, _assignments(request))
        return (yield from assign_directories(image, node.config, request.broker_id, assignments))

    carry_out(node, context, decide, _response)


def _assignments(request: AssignReplicasToDirsRequest) -> Iterator[DirectoryAssignment]:
    for directory in request.directories:
        for topic in directory.topics:
            for partition in topic.partitions:
                yield DirectoryAssignment(directory.id_, topic.topic_id, partition.partition_index)


def _response(
    results: Sequence[tuple[AssignedReplica, ApiError | None]],
) -> Steps[AssignReplicasToDirsResponse]:
    found: dict[bytes, dict[bytes, list[ResponsePartitionData]]] = {}
    for number, ((assignment, _), error) in enumerate(results, 1):
        if not number % ITEMS_A_STEP:
            yield
        directory, topic_id, index = assignment
        code, _ = error_fields(error)
        found.setdefault(directory, {}).setdefault(topic_id, []).append(
            ResponsePartitionData(partition_index=index, error_code=code)
        )
    return AssignReplicasToDirsResponse(directories=LazyList(_directory, list(found.items())))


def _directory(
    found: tuple[bytes, dict[bytes, list[ResponsePartitionData]]],
) -> ResponseDirectoryData:
    directory, topics = found
    return ResponseDirectoryData(id_=directory, topics=LazyList(_topic, list(topics.items())))


def _topic(found: tuple[bytes, list[ResponsePartitionData]]) -> ResponseTopicData:
    topic_id, partitions = found
    return ResponseTopicData(topic_id=topic_id, partitions=partitions)
