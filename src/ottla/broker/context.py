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
    """Version, sender and time of one request, and its reply.

    There is one for every request. Defaults are attributes of the class, which costs less than
    setting them for each request.
    """

    client_id: str | None = None
    throttle_ms = 0
    is_timed = False
    received_ms = 0.0
    handled_ms = 0.0
    queued = False
    """True if the reply has its place in the queue of the connection."""
    parts: list[Part] | None = None
    """The reply, if it is complete and waits for replies before it."""

    def __init__(self, api: Api, connection: Connection, version: int, correlation_id: int) -> None:
        self.api = api
        self.connection = connection
        self.version = version
        self.correlation_id = correlation_id

    @property
    def node(self) -> Node:
        """The node that handles the request."""
        return self.api.node

    @property
    def now_ms(self) -> int:
        """The wall time of this wake-up."""
        return self.api.node.wall_ms

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
        """True if the request still waits for its reply."""
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
        self.complete(_SIZE.pack(len(header) + len(body)) + header + body)

    def complete(self, frame: bytes) -> None:
        """Answer with a whole frame, which leaves after the replies before it."""
        connection = self.connection
        pending = connection.pending
        if self.queued:
            if connection.closed:
                return
            if pending[0] is self:
                pending.popleft()
                connection.out.append(frame)
                if pending:
                    connection.release_complete()
            else:
                self._keep([frame])
            if connection.parked is self:
                connection.parked = None
            self.api.node.ready.append(connection)
        elif not pending:
            connection.out.append(frame)
        else:
            self._keep([frame])
            self.wait()
        metrics = self.api.metrics
        metrics.response_bytes += len(frame)
        if self.is_timed:
            metrics.answered(self)

    def complete_parts(self, parts: list[Part]) -> None:
        """Answer with the parts of a whole frame, which leave after the replies before it."""
        if len(parts) == 1 and isinstance(parts[0], bytes):
            self.complete(parts[0])
            return
        connection = self.connection
        if connection.closed:
            return
        self._keep(parts)
        if not self.queued:
            self.wait()
        if connection.parked is self:
            connection.parked = None
        connection.release_complete()
        self.api.node.ready.append(connection)
        metrics = self.api.metrics
        metrics.count_parts(parts)
        if self.is_timed:
            metrics.answered(self)

    def _keep(self, parts: list[Part]) -> None:
        assert self.parts is None, "a request is answered twice"
        self.parts = parts
