"""A client's connection as the core sees it: replies that are owed, and what may be sent."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from ottla.log.segment.file_slice import FileSlice

if TYPE_CHECKING:
    from ottla.broker.quotas import HeldBack

Part: TypeAlias = bytes | FileSlice

MOST_REPLIES: Final = 64
"""How many replies of one connection may be owed or unsent before it is not read any more."""

ANONYMOUS: Final = "User:ANONYMOUS"


class PendingReply(Protocol):
    """A reply that is owed; `parts` is None until it is complete."""

    parts: list[Part] | None

    def abandon(self) -> None:
        """Stop waiting: the connection is gone."""
        ...


class Connection:
    """State of one connection.

    Requests are handled in the order they arrive, and so do their replies leave: `pending` holds
    the replies that are owed, in order, and `out` the parts that may be sent now. Most requests
    that wait (a Produce for its followers) let those behind them be handled. One that must not
    is `parked`: no further request is taken until it is answered. A throttled connection is
    parked as well (`quotas.HeldBack`). `closing` asks the edge to close once `out` is empty.
    `edge` belongs to the edge.
    """

    __slots__ = (
        "client_software",
        "closed",
        "closing",
        "edge",
        "listener",
        "out",
        "parked",
        "peer_host",
        "pending",
        "principal",
    )

    def __init__(self, peer_host: str, listener: str, edge: object = None) -> None:
        self.out: list[Part] = []
        self.pending: deque[PendingReply] = deque()
        self.parked: PendingReply | HeldBack | None = None
        self.closing = False
        self.closed = False
        self.peer_host = peer_host
        self.listener = listener
        self.principal = ANONYMOUS
        self.client_software = ""
        self.edge = edge

    @property
    def takes_requests(self) -> bool:
        """Whether another request may be handled now."""
        return (
            self.parked is None
            and not self.closing
            and len(self.out) < MOST_REPLIES
            and len(self.pending) < MOST_REPLIES
        )

    def release_complete(self) -> None:
        """Let the replies go that are complete and have none before them that is not."""
        pending, out = self.pending, self.out
        while pending and (parts := pending[0].parts) is not None:
            pending.popleft()
            out += parts

    def abandon(self) -> None:
        """Forget every reply that is owed: the peer is gone."""
        self.closed = True
        self.parked = None
        while self.pending:
            self.pending.popleft().abandon()
