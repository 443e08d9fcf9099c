"""BrokerRegistration, versions 0 to 4: a broker that starts joins the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.config.listeners import SECURITY_PROTOCOLS, Endpoint
from ottla.controller.broker_membership import Registration
from ottla.controller.node_limits import check_counts, check_listeners, check_texts
from ottla.metadata.image import FeatureRange
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Listener,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node

FIRST_WITH_PREVIOUS_EPOCH = 3


def handle(node: Node, request: BrokerRegistrationRequest, context: RequestContext) -> None:
    """Register the broker, and answer with its epoch."""
    check_id(request.broker_id)
    check_counts(request.features, request.log_dirs)
    check_listeners(request.listeners)
    check_texts(request.rack, *(each.name for each in request.features))
    registration = Registration(
        request.broker_id,
        request.cluster_id,
        request.incarnation_id,
        tuple(_endpoint(listener) for listener in request.listeners),
        tuple(
            FeatureRange(each.name, each.min_supported_version, each.max_supported_version)
            for each in request.features
        ),
        request.rack,
        tuple(request.log_dirs),
        request.previous_broker_epoch if context.version >= FIRST_WITH_PREVIOUS_EPOCH else None,
    )
    reply = context.defer()

    def done(result: int | ApiError) -> None:
        if isinstance(result, ApiError):
            reply.send(BrokerRegistrationResponse(error_code=result.code, broker_epoch=-1))
        else:
            node.broker_connections.add(context.connection, request.broker_id)
            reply.send(BrokerRegistrationResponse(broker_epoch=result))

    try:
        node.membership.register(registration, done)
    except ApiError as error:
        done(error)


def check_id(node_id: int) -> None:
    """Raise INVALID_REQUEST for a negative id, which no node can have."""
    if node_id < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a node cannot have the id {node_id}")


def _endpoint(listener: Listener) -> Endpoint:
    if not 0 <= listener.security_protocol < len(SECURITY_PROTOCOLS):
        raise ApiError(ErrorCode.INVALID_REQUEST, "an unknown security protocol")
    protocol = SECURITY_PROTOCOLS[listener.security_protocol]
    return Endpoint(listener.name, listener.host, listener.port, protocol)
