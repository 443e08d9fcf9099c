"""AddOffsetsToTxn, versions 0 to 4: a transaction will commit offsets of a group (KIP-98).

It adds the group's partition of __consumer_offsets to the transaction. Clients of transaction
version 2 do not send it: the group coordinator adds the partition.

A producer without a consumer looks for the group coordinator only after this. So this creates the
topic if it does not exist yet.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.auto_topic_creation import auto_create
from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.coordinator.runtime.partitioner import partition_of
from ottla.coordinator.transactions.add_partitions import AddPartitions
from ottla.coordinator.transactions.outcome import Outcome
from ottla.model.acl import AclOperation, AclResourceType
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import OFFSETS_TOPIC, TopicPartition
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

FIRST_PRODUCER_FENCED = 2


def handle(node: Node, request: AddOffsetsToTxnRequest, context: RequestContext) -> None:
    """Answer when the partition is in the transaction."""
    transactional_id = request.transactional_id
    context.authorize(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id)
    context.authorize(AclOperation.READ, AclResourceType.GROUP, request.group_id)
    node.transactions.runtime_of(transactional_id)  # raises before the request is parked
    num_partitions = node.groups.host.num_partitions
    if not num_partitions:
        _create_topic(node, request, context)
        return
    partition = TopicPartition(OFFSETS_TOPIC, partition_of(request.group_id, num_partitions))
    asked = AddPartitions(
        transactional_id, request.producer_id, request.producer_epoch, [partition], 0
    )
    context.defer()

    def done(outcome: Outcome) -> None:
        context.send(refuse(request, ApiError(outcome.error_code), context))

    node.transactions.add_partitions(asked, done, may_wait=True)


def _create_topic(node: Node, request: AddOffsetsToTxnRequest, context: RequestContext) -> None:
    """Create the offsets topic. Then the client is asked to try again."""
    context.defer()

    def created(errors: Mapping[str, ApiError]) -> None:
        context.send(refuse(request, ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE), context))

    auto_create(node, [OFFSETS_TOPIC], created)


def refuse(
    request: AddOffsetsToTxnRequest, error: ApiError, context: RequestContext
) -> AddOffsetsToTxnResponse:
    """Return the error. Older clients do not know PRODUCER_FENCED."""
    code = error.code
    if code is ErrorCode.PRODUCER_FENCED and context.version < FIRST_PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=code)
