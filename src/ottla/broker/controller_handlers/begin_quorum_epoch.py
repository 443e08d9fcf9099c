"""BeginQuorumEpoch, versions 0 and 1: a new leader of the quorum announces itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.controller_handlers.quorum_requests import ask
from ottla.controller.quorum.replies_to_wire import begin_quorum_epoch, begin_quorum_epoch_reply
from ottla.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest

if TYPE_CHECKING:
    from ottla.broker.node import Node


def handle(node: Node, request: BeginQuorumEpochRequest, context: RequestContext) -> None:
    """Let the quorum answer."""
    ask(node, request, context, begin_quorum_epoch, begin_quorum_epoch_reply)
