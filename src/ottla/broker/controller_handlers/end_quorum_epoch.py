"""EndQuorumEpoch, versions 0 and 1: the leader of the quorum resigns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.controller_handlers.quorum_requests import ask
from ottla.controller.quorum.replies_to_wire import end_quorum_epoch, end_quorum_epoch_reply
from ottla.wire.messages.end_quorum_epoch import EndQuorumEpochRequest

if TYPE_CHECKING:
    from ottla.broker.node import Node


def handle(node: Node, request: EndQuorumEpochRequest, context: RequestContext) -> None:
    """Let the quorum answer."""
    ask(node, request, context, end_quorum_epoch, end_quorum_epoch_reply)
