"""UnregisterBroker, version 0: remove a broker for good (KIP-500)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.controller_decisions import carry_out_whole, error_fields
from ottla.broker.node import Node
from ottla.controller.broker_changes import unregister
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


def handle(node: Node, request: UnregisterBrokerRequest, context: RequestContext) -> None:
    """Answer once the broker is gone. One that still runs registers again, as with Kafka."""
    if node.config.is_alone and request.broker_id == node.node_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "This is the only broker of the cluster")
    carry_out_whole(
        node,
        context,
        lambda image: unregister(image, node.config, request.broker_id),
        _response,
    )


def _response(error: ApiError | None) -> UnregisterBrokerResponse:
    code, message = error_fields(error)
    return UnregisterBrokerResponse(error_code=code, error_message=message)
