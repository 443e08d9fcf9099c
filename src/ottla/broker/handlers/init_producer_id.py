"""InitProducerId, versions 0 to 6, for idempotent producers (KIP-98)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def handle(node: Node, request: InitProducerIdRequest, context: RequestContext) -> None:
    """Answer with a producer id that nobody had before, in epoch 0."""
    transactional_id = request.transactional_id
    if transactional_id is not None:
        # An empty id is never valid; a real one needs a transaction coordinator.
        code = ErrorCode.UNSUPPORTED_VERSION if transactional_id else ErrorCode.INVALID_REQUEST
        raise ApiError(code)
    reply = context.defer()

    def take(producer_id: int | ApiError) -> None:
        if isinstance(producer_id, ApiError):
            reply.send(InitProducerIdResponse(error_code=producer_id.code))
        else:
            reply.send(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    node.producer_ids.next(take)
