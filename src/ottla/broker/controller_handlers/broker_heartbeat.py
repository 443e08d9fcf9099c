"""BrokerHeartbeat, versions 0 to 2: a broker shows that it is alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.controller.broker_membership import HeartbeatReply
from ottla.model.errors import ApiError
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

if TYPE_CHECKING:
    from ottla.broker.node import Node


def handle(node: Node, request: BrokerHeartbeatRequest, context: RequestContext) -> None:
    """Take the sign of life; answer once what follows from it is committed."""
    reply = context.defer()

    def done(result: HeartbeatReply | ApiError) -> None:
        if isinstance(result, ApiError):
            reply.send(BrokerHeartbeatResponse(error_code=result.code))
            return
        node.broker_connections.add(context.connection, request.broker_id)
        reply.send(
            BrokerHeartbeatResponse(
                is_caught_up=result.is_caught_up,
                is_fenced=result.is_fenced,
                should_shut_down=result.should_shut_down,
            )
        )

    try:
        node.membership.heartbeat(
            request.broker_id,
            request.broker_epoch,
            request.current_metadata_offset,
            wants_fence=request.want_fence,
            wants_shutdown=request.want_shut_down,
            done=done,
            failed_dirs=request.offline_log_dirs,
        )
    except ApiError as error:
        done(error)
