"""DescribeCluster, versions 0 to 2: the brokers as clients reach them (KIP-700, KIP-919)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.handlers.metadata import CLUSTER_OPERATIONS, NOT_ASKED
from ottla.broker.node import Node
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1
CONTROLLERS = 2


def handle(
    node: Node, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    """Return the brokers, with their addresses on the listener that the client uses."""
    if request.endpoint_type == CONTROLLERS:
        raise ApiError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type"
            " CONTROLLER",
        )
    if request.endpoint_type != BROKERS:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            f"Unsupported endpoint type {request.endpoint_type}",
        )
    brokers = _brokers(node, context.connection.listener, request.include_fenced_brokers)
    return DescribeClusterResponse(
        cluster_id=node.cluster_id,
        controller_id=node.any_broker([each.broker_id for each in brokers if not each.is_fenced]),
        brokers=brokers,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _brokers(node: Node, listener: str, include_fenced: bool) -> list[DescribeClusterBroker]:
    return [
        DescribeClusterBroker(
            broker_id=broker.broker_id,
            host=endpoint.host,
            port=endpoint.port,
            rack=broker.rack,
            is_fenced=broker.fenced,
        )
        for broker in node.image.brokers.values()
        for endpoint in broker.endpoints
        if endpoint.listener_name == listener and (include_fenced or not broker.fenced)
    ]
