"""AssignReplicasToDirs, version 0: in which log directory a broker has replicas (KIP-858)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.controller_decisions import carry_out, error_fields
from ottla.controller.alter_partition import check_broker
from ottla.controller.brokers import DIRECTORIES_LEVEL, METADATA_VERSION
from ottla.controller.log_directories import (
    AssignedReplica,
    DirectoryAssignment,
    assign_directories,
)
from ottla.model.errors import ApiError, ErrorCode
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
    assignments = [
        DirectoryAssignment(directory.id_, topic.topic_id, partition.partition_index)
        for directory in request.directories
        for topic in directory.topics
        for partition in topic.partitions
    ]
    carry_out(
        node,
        context,
        lambda image: assign_directories(image, node.config, request.broker_id, assignments),
        _response,
    )


def _response(
    results: Sequence[tuple[AssignedReplica, ApiError | None]],
) -> AssignReplicasToDirsResponse:
    found: dict[bytes, dict[bytes, list[ResponsePartitionData]]] = {}
    for (assignment, _), error in results:
        directory, topic_id, index = assignment
        code, _ = error_fields(error)
        found.setdefault(directory, {}).setdefault(topic_id, []).append(
            ResponsePartitionData(partition_index=index, error_code=code)
        )
    return AssignReplicasToDirsResponse(
        directories=[
            ResponseDirectoryData(
                id_=directory,
                topics=[
                    ResponseTopicData(topic_id=topic_id, partitions=partitions)
                    for topic_id, partitions in topics.items()
                ],
            )
            for directory, topics in found.items()
        ]
    )
