"""One request under way: what is known about it besides its body, and the reply it gets.

    handled at once     `send` right away: the handler returns its response
    waiting             `wait`: the handler returns None; requests behind this one are handled
    parked              `defer`: likewise, but requests behind this one wait for its reply

A waiting or parked request is answered once, by `send` or `complete`, from a timer, from another
request, or when its records are written or committed.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from ottla.broker.connection import Connection, Part
from ottla.wire.codec import encoder
from ottla.wire.header import response_header
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.broker.api import Api
    from ottla.broker.node import Node

_SIZE = Struct(">i")


class RequestContext:
    """Version, sender and time of one request, and its reply."""

    __slots__ = (
        "api",
        "client_id",
        "connection",
        "correlation_id",
        "handled_ms",
        "is_timed",
        "node",
        "parts",
        "queued",
        "received_ms",
        "throttle_ms",
        "version",
    )

    def __init__(
        self, node: Node, api: Api, connection: Connection, version: int, correlation_id: int
    ) -> None:
        self.node = node
        self.api = api
        self.connection = connection
        self.version = version
        self.correlation_id = correlation_id
        self.received_ms = node.monotonic_ms
        self.client_id: str | None = None
        self.parts: list[Part] | None = None
        self.queued = False
        """Whether the reply has its place among those the connection owes."""
        self.throttle_ms = 0
        self.is_timed = False
        self.handled_ms = 0.0

    @property
    def now_ms(self) -> int:
        """The wall time of this wake-up."""
        return self.node.wall_ms

    # -- answering later -----------------------------------------------------------------

    def wait(self) -> None:
        """Answer later; requests behind this one are handled meanwhile."""
        self.queued = True
        self.connection.pending.append(self)

    def defer(self) -> RequestContext:
        """Answer later; requests behind this one wait until then."""
        self.wait()
        self.connection.parked = self
        return self

    @property
    def is_wanted(self) -> bool:
        """Whether somebody still waits for the reply."""
        return self.queued and self.parts is None and not self.connection.closed

    def abandon(self) -> None:
        """Stop waiting: the connection is gone."""

    # -- answering -----------------------------------------------------------------------

    def send(self, response: Message) -> None:
        """Answer with a message; nothing happens if the peer has gone."""
        if self.throttle_ms and "throttle_time" in response.__slots__:
            response.throttle_time = self.throttle_ms  # type: ignore[attr-defined]
        self.send_body(encoder(type(response), self.version)(response))

    def send_body(self, body: bytes) -> None:
        """Answer with a response that is encoded already, but for its header."""
        header = response_header(self.api.key, self.version, self.correlation_id)
        self.complete([_SIZE.pack(len(header) + len(body)) + header + body])

    def complete(self, parts: list[Part]) -> None:
        """Answer with the parts of a whole frame, which leave after the replies before them."""
        connection = self.connection
        if connection.closed:
            return
        pending = connection.pending
        if not self.queued:
            if pending:
                self.parts = parts
                self.queued = True
                pending.append(self)
            else:
                connection.out += parts
        else:
            assert self.parts is None, "a request is answered twice"
            self.parts = parts
            if connection.parked is self:
                connection.parked = None
            if pending[0] is self:
                connection.release_complete()
            self.node.ready.append(connection)
        self.api.metrics.answered(self, parts)
