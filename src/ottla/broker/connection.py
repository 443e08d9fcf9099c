"""A client's connection as the core sees it: what to send, and whether it waits."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from ottla.log.segment.file_slice import FileSlice

Part: TypeAlias = bytes | FileSlice


class Parked(Protocol):
    """A request that waits for something; its connection takes no further ones meanwhile."""

    def abandon(self) -> None:
        """The connection is gone: stop waiting."""
        ...


class Connection:
    """State of one connection. `out` holds response parts in order, for the edge to send.

    Replies become final only when the node has settled, so the edge sends after that.
    `closing` asks the edge to close once `out` is empty. `edge` belongs to the edge.
    """

    __slots__ = ("client_software", "closing", "edge", "listener", "out", "parked", "peer_host")

    def __init__(self, peer_host: str, listener: str, edge: object = None) -> None:
        self.out: list[Part] = []
        self.parked: Parked | None = None
        self.closing = False
        self.peer_host = peer_host
        self.listener = listener
        self.client_software = ""
        self.edge = edge
