"""DescribeCluster on the listener of controllers, versions 0 to 2: the controllers (KIP-919)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.handlers.describe_cluster import BROKERS, CONTROLLERS
from ottla.broker.handlers.metadata import CLUSTER_OPERATIONS, NOT_ASKED
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node


def handle(
    node: Node, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    """Return the registered controllers, and which of them leads the quorum."""
    if request.endpoint_type == BROKERS:
        raise ApiError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE, "This is a controller's listener, not a broker's"
        )
    if request.endpoint_type != CONTROLLERS:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unknown endpoint type {request.endpoint_type}"
        )
    member = node.controller.member
    leader = None if member is None else member.leader
    return DescribeClusterResponse(
        endpoint_type=CONTROLLERS,
        cluster_id=node.cluster_id,
        controller_id=-1 if leader is None else leader[0],
        brokers=[
            DescribeClusterBroker(
                broker_id=controller.controller_id, host=endpoint.host, port=endpoint.port
            )
            for controller in node.image.controllers.values()
            for endpoint in controller.endpoints
            if endpoint.listener_name == context.connection.listener
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
