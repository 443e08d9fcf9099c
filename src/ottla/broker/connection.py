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

LARGE_REPLY_BYTES: Final = 16 * 1024
"""A reply with more bytes in memory is the last that a connection gets until it is sent.

So a connection holds at most MOST_REPLIES of this size and one that is larger. Kafka handles one
request of a connection at a time, and holds one response. Records that `sendfile` sends take no
memory and do not count.
"""

ANONYMOUS: Final = "User:ANONYMOUS"


class PendingReply(Protocol):
    """A reply that is owed; `parts` is None until it is complete."""

    parts: list[Part] | None

    def abandon(self) -> None:
        """Stop waiting: the connection is gone."""
        ...


class Connection:
    """State of one connection.

    Requests are handled in the order they arrive, and replies leave in the same order: `pending`
    holds the replies that are owed, and `out` the parts that may be sent now. Most requests
    that wait (a Produce for its followers) let those behind them be handled. One that must not
    is `parked`: no further request is taken until it is answered. A throttled connection is
    parked as well (`quotas.HeldBack`). While `large_bytes`, the bytes of large replies that are
    owed or unsent, is not zero, no further request is taken either. `closing` asks the edge to
    close once `out` is empty, and `problem` says why. `edge` belongs to the edge.
    """

    __slots__ = (
        "client_software",
        "closed",
        "closing",
        "edge",
        "large_bytes",
        "listener",
        "out",
        "parked",
        "peer_host",
        "pending",
        "principal",
        "problem",
    )

    def __init__(self, peer_host: str, listener: str, edge: object = None) -> None:
        self.out: list[Part] = []
        self.pending: deque[PendingReply] = deque()
        self.parked: PendingReply | HeldBack | None = None
        self.large_bytes = 0
        self.closing = False
        self.problem: str | None = None
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
            and not self.large_bytes
            and len(self.out) < MOST_REPLIES
            and len(self.pending) < MOST_REPLIES
        )

    def release_complete(self) -> None:
        """Move complete replies to `out`, up to the first one that is not complete."""
        pending, out = self.pending, self.out
        while pending and (parts := pending[0].parts) is not None:
            pending.popleft()
            out += parts

    def sent(self) -> None:
        """Take note that `out` was sent. Large replies may still wait for those before them."""
        if not self.pending:
            self.large_bytes = 0

    def close_after_replies(self, problem: str) -> None:
        """Take no further request, and have the connection closed once its replies are sent."""
        self.closing = True
        self.problem = problem

    def abandon(self) -> None:
        """Forget every reply that is owed: the peer is gone."""
        self.closed = True
        self.parked = None
        while self.pending:
            self.pending.popleft().abandon()
