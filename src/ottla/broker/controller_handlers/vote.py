"""Vote, versions 0 to 2: a (prospective) candidate asks for this controller's vote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.controller_handlers.quorum_requests import ask
from ottla.controller.quorum.replies_to_wire import vote, vote_reply
from ottla.wire.messages.vote import VoteRequest

if TYPE_CHECKING:
    from ottla.broker.node import Node


def handle(node: Node, request: VoteRequest, context: RequestContext) -> None:
    """Let the quorum answer."""
    ask(node, request, context, vote, vote_reply)
