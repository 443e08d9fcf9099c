"""AddRaftVoter, versions 0 and 1: add a controller to the voters (KIP-853)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.controller_handlers.quorum_requests import ask
from ottla.broker.node import Node
from ottla.controller.quorum.replies_to_wire import add_voter, add_voter_reply
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest


def handle(node: Node, request: AddRaftVoterRequest, context: RequestContext) -> None:
    """Let the quorum answer."""
    ask(node, request, context, add_voter, add_voter_reply)
