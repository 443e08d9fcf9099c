"""ListPartitionReassignments, version 0: replicas that are being moved (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.controller.reassignments import reassigning
from ottla.metadata.image import MetadataImage
from ottla.model.ids import TopicPartition
from ottla.model.steps import Steps, in_steps
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

_PARTITIONS_A_STEP: Final = 1000


def handle(node: Node, request: ListPartitionReassignmentsRequest, context: RequestContext) -> None:
    """Return the reassignments that are going on, of some partitions or of all."""
    context.defer()
    context.run_in_slices(_answer(node.controller.image, request, context))


def _asked(request: ListPartitionReassignmentsRequest) -> Iterator[TopicPartition]:
    for topic in request.topics or ():
        for index in topic.partition_indexes:
            yield TopicPartition(topic.name, index)


def _answer(
    image: MetadataImage, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> Steps[None]:
    asked = None
    if request.topics is not None:
        asked = yield from in_steps(lambda name: name, _asked(request), _PARTITIONS_A_STEP)
    found = yield from reassigning(image, asked)
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    for name, partition in found.items():
        yield
        topics.setdefault(name.topic, []).append(
            OngoingPartitionReassignment(
                partition_index=name.partition,
                replicas=partition.replicas,
                adding_replicas=partition.adding_replicas,
                removing_replicas=partition.removing_replicas,
            )
        )
    response = ListPartitionReassignmentsResponse(
        error_message=None,
        topics=[
            OngoingTopicReassignment(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )
    yield from context.send_in_slices(response)
