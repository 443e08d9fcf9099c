"""RemoveRaftVoter, version 0: remove a controller from the voters (KIP-853)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.controller_handlers.quorum_requests import ask
from ottla.broker.node import Node
from ottla.controller.quorum.replies_to_wire import remove_voter, remove_voter_reply
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest


def handle(node: Node, request: RemoveRaftVoterRequest, context: RequestContext) -> None:
    """Let the quorum answer."""
    ask(node, request, context, remove_voter, remove_voter_reply)
