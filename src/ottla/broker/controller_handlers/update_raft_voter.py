"""UpdateRaftVoter, version 0: a voter says where it listens now (KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.controller_handlers.quorum_requests import ask
from ottla.controller.quorum.replies_to_wire import update_voter, update_voter_reply
from ottla.wire.messages.update_raft_voter import UpdateRaftVoterRequest

if TYPE_CHECKING:
    from ottla.broker.node import Node


def handle(node: Node, request: UpdateRaftVoterRequest, context: RequestContext) -> None:
    """Let the quorum answer."""
    ask(node, request, context, update_voter, update_voter_reply)
