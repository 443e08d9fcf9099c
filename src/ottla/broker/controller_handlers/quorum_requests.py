"""Requests that the state machine of the quorum answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.broker.context import RequestContext
from ottla.controller.quorum.replies_to_wire import check_cluster
from ottla.model.errors import ApiError, ErrorCode
from ottla.raft.messages import AnyRequest, AnyResponse
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.controller.quorum.member import QuorumMember


def ask(
    node: Node,
    request: Any,
    context: RequestContext,
    read: Callable[[Any, int], AnyRequest],
    write: Callable[[Any], Message],
) -> None:
    """Pass a request on to the quorum, and its answer back when there is one."""
    check_cluster(request.cluster_id, node.cluster_id)
    message = read(request, context.version)
    reply = context.defer()

    def answer(response: AnyResponse, records: bytes | None) -> None:
        reply.send(write(response))

    member_of(node).driver.request(message, answer)


def member_of(node: Node) -> QuorumMember:
    """Return this node's part in the quorum."""
    member = node.controller.member
    if member is None:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION, "kraft.version is 0: this node is a cluster of its own"
        )
    return member
