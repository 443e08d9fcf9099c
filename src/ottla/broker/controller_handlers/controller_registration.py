"""ControllerRegistration, version 0: a controller's addresses and features (KIP-919)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.controller_decisions import carry_out_whole, error_fields
from ottla.broker.controller_handlers.broker_registration import check_id
from ottla.controller.controllers import register_controller
from ottla.controller.node_limits import check_counts, check_listeners, check_texts
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node


def handle(node: Node, request: ControllerRegistrationRequest, context: RequestContext) -> None:
    """Answer once the registration is committed."""
    if not node.controller.is_active:
        raise ApiError(ErrorCode.NOT_CONTROLLER)
    check_id(request.controller_id)
    check_counts(request.features)
    check_listeners(request.listeners)
    check_texts(*(each.name for each in request.features))
    carry_out_whole(node, context, lambda image: register_controller(image, request), _response)


def _response(error: ApiError | None) -> ControllerRegistrationResponse:
    code, message = error_fields(error)
    return ControllerRegistrationResponse(error_code=code, error_message=message)
