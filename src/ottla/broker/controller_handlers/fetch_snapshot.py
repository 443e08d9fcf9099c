"""FetchSnapshot, versions 0 and 1: a node fetches a part of a metadata snapshot (KIP-630)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.controller_handlers.quorum_requests import ask
from ottla.controller.quorum.replies_to_wire import fetch_snapshot, fetch_snapshot_reply
from ottla.wire.messages.fetch_snapshot import FetchSnapshotRequest

if TYPE_CHECKING:
    from ottla.broker.node import Node


def handle(node: Node, request: FetchSnapshotRequest, context: RequestContext) -> None:
    """Let the quorum answer."""
    ask(node, request, context, fetch_snapshot, fetch_snapshot_reply)
