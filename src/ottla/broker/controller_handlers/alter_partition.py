"""AlterPartition, versions 2 and 3: a leader changes the ISR of its partitions (KIP-497)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ottla.broker.context import RequestContext
from ottla.broker.controller_decisions import carry_out, error_fields
from ottla.controller.alter_partition import (
    ChangedPartition,
    IsrChange,
    IsrMember,
    alter_partitions,
    check_broker,
)
from ottla.controller.decision import Decision
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import ITEMS_A_STEP, Steps, in_steps
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node

MOST_MEMBERS: Final = 1000
"""As many of an ISR are looked at. No partition has so many replicas: it is refused for these."""


def handle(node: Node, request: AlterPartitionRequest, context: RequestContext) -> None:
    """Decide on each partition, and answer with how it is after the change."""
    controller = node.controller
    if not controller.is_active:
        raise ApiError(ErrorCode.NOT_CONTROLLER)
    check_broker(controller.latest_image, request.broker_id, request.broker_epoch)

    def decide(image: MetadataImage) -> Steps[Decision[ChangedPartition]]:
        changes = yield from in_steps(lambda change: change, _changes(request, context.version))
        return (yield from alter_partitions(image, node.config, request.broker_id, changes))

    carry_out(node, context, decide, _response)


def _changes(request: AlterPartitionRequest, version: int) -> Iterator[IsrChange]:
    for topic in request.topics:
        for asked in topic.partitions:
            yield IsrChange(
                topic.topic_id,
                asked.partition_index,
                asked.leader_epoch,
                asked.partition_epoch,
                _members(asked, version),
                asked.leader_recovery_state,
            )


def _members(asked: RequestPartitionData, version: int) -> tuple[IsrMember, ...]:
    if version >= 3:
        members = asked.new_isr_with_epochs[:MOST_MEMBERS]
        return tuple(IsrMember(each.broker_id, each.broker_epoch) for each in members)
    return tuple(IsrMember(broker_id) for broker_id in asked.new_isr[:MOST_MEMBERS])


def _response(
    results: Sequence[tuple[ChangedPartition, ApiError | None]],
) -> Steps[AlterPartitionResponse]:
    topics: dict[bytes, list[ResponsePartitionData]] = {}
    for number, (changed, error) in enumerate(results, 1):
        if not number % ITEMS_A_STEP:
            yield
        code, _ = error_fields(error)
        partition = changed.partition
        data = ResponsePartitionData(partition_index=changed.partition_id, error_code=code)
        if partition is not None and error is None:
            data.leader_id = partition.leader
            data.leader_epoch = partition.leader_epoch
            data.isr = list(partition.isr)
            data.leader_recovery_state = partition.leader_recovery_state
            data.partition_epoch = partition.partition_epoch
        topics.setdefault(changed.topic_id, []).append(data)
    return AlterPartitionResponse(
        topics=[
            ResponseTopicData(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ]
    )
