"""AllocateProducerIds, version 0: a broker gets its next block of producer ids (KIP-730)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.producer_ids import allocate_block
from ottla.controller.alter_partition import check_broker
from ottla.controller.producer_ids import ProducerIdBlock
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node


def handle(node: Node, request: AllocateProducerIdsRequest, context: RequestContext) -> None:
    """Give the broker a block that nobody else gets."""
    controller = node.controller
    if not controller.is_active:
        raise ApiError(ErrorCode.NOT_CONTROLLER)
    check_broker(controller.latest_image, request.broker_id, request.broker_epoch)
    reply = context.defer()

    def done(result: ProducerIdBlock | ApiError) -> None:
        if isinstance(result, ApiError):
            reply.send(AllocateProducerIdsResponse(error_code=result.code))
        else:
            first, size = result
            reply.send(AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=size))

    allocate_block(node, request.broker_id, request.broker_epoch, done)
