"""InitProducerId, versions 0 to 6, for idempotent producers (KIP-98)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def handle(
    node: Node, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    """A producer id that nobody had before, in epoch 0."""
    transactional_id = request.transactional_id
    if transactional_id is not None:
        # An empty id is nonsense anywhere; a real one needs a transaction coordinator.
        code = ErrorCode.UNSUPPORTED_VERSION if transactional_id else ErrorCode.INVALID_REQUEST
        raise ApiError(code)
    return InitProducerIdResponse(producer_id=node.next_producer_id(), producer_epoch=0)
