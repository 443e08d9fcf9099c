"""ConsumerGroupHeartbeat, versions 0 and 1: members of the consumer protocol (KIP-848)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.groups import check_consumer_protocol, client_of
from ottla.broker.node import Node
from ottla.coordinator.groups.consumer.heartbeat import heartbeat
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle(
    node: Node, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse | None:
    """Return the member's epoch and, if it has changed, its assignment."""
    check_consumer_protocol(node)
    if not request.group_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    runtime = node.groups.runtime_of(request.group_id)
    response, records = heartbeat(runtime.shard, request, client_of(context))
    if not records and runtime.is_settled:
        return response
    runtime.shard.answer(context.defer(), response)
    runtime.finish(records)
    return None
