"""Fetch on the listener of controllers, versions 12 to 18: records of the metadata log.

Other topics are not served here. Requests wait in the state machine of the quorum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.controller_handlers.quorum_requests import member_of
from ottla.controller.quorum.replies_to_wire import check_cluster, fetch, fetch_reply
from ottla.raft.messages import AnyResponse
from ottla.raft.messages import FetchResponse as QuorumFetchResponse
from ottla.wire.messages.fetch import FetchRequest

if TYPE_CHECKING:
    from ottla.broker.node import Node


def handle(node: Node, request: FetchRequest, context: RequestContext) -> None:
    """Let the quorum answer, with records if there are some."""
    check_cluster(request.cluster_id, node.cluster_id)
    message = fetch(request, context.version)
    reply = context.defer()

    def answer(response: AnyResponse, records: bytes | None) -> None:
        assert isinstance(response, QuorumFetchResponse)
        reply.send(fetch_reply(response, records))

    member_of(node).driver.request(message, answer)
