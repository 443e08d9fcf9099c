"""One request under way: what is known about it besides its body, and the reply it gets.

    handled at once     `send` right away: the handler returns its response
    waiting             `wait`: the handler returns None; requests behind this one are handled
    parked              `defer`: likewise, but requests behind this one wait for its reply

A waiting or parked request is answered once, by `send` or `complete`, from a timer, from another
request, or when its records are written or committed. Its state:

    NEW      -> WAITING     `wait`, `defer`
    NEW      -> ANSWERED    `send`, `send_body`, `complete`, `complete_parts`
    WAITING  -> ANSWERED    the same
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla.broker.connection import Connection, Part
from ottla.model.errors import ApiError
from ottla.wire.codec import encoder
from ottla.wire.header import response_header
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.broker.api import Api
    from ottla.broker.node import Node
    from ottla.model.acl import AclOperation, AclResourceType

_SIZE = Struct(">i")

NEW: Final = 0
WAITING: Final = 1
ANSWERED: Final = 2


class RequestContext:
    """Version, sender and time of one request, and its reply.

    There is one for every request. Defaults are attributes of the class, which costs less than
    setting them for each request.
    """

    client_id: str | None = None
    throttle_ms = 0
    is_timed = False
    received_ms = 0.0
    handled_ms: float | None = None
    """When the handler of a timed request returned; None before."""
    state = NEW
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

    # -- authorisation -------------------------------------------------------------------

    def allows(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:
        """Return True if the principal of the connection may do this with a resource."""
        authorizer = self.node.pipeline.authorizer
        return authorizer is None or authorizer.allows(self, operation, resource_type, name)

    def authorize(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> None:
        """Raise the resource type's AUTHORIZATION_FAILED error unless this is allowed."""
        if not self.allows(operation, resource_type, name):
            from ottla.model.acl import DENIED

            raise ApiError(DENIED[resource_type])

    # -- answering later -----------------------------------------------------------------

    def wait(self) -> None:
        """Answer later; requests behind this one are handled meanwhile."""
        assert self.state == NEW
        self.state = WAITING
        self.connection.pending.append(self)

    def defer(self) -> RequestContext:
        """Answer later; requests behind this one wait until then."""
        self.wait()
        self.connection.parked = self
        return self

    @property
    def is_wanted(self) -> bool:
        """Whether somebody still waits for the reply."""
        return self.state == WAITING and not self.connection.closed

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
        if self.state == WAITING:
            self.state = ANSWERED
            if connection.closed:
                return
            if pending[0] is self:
                pending.popleft()
                connection.out.append(frame)
                if pending and pending[0].parts is not None:
                    connection.release_complete()
            else:
                self.parts = [frame]
            if connection.parked is self:
                connection.parked = None
            self.api.node.ready.append(connection)
        else:
            assert self.state == NEW, "a request is answered twice"
            self.state = ANSWERED
            if pending:
                self.parts = [frame]
                pending.append(self)
            else:
                connection.out.append(frame)
        metrics = self.api.metrics
        metrics.response_bytes += len(frame)
        if self.is_timed:
            metrics.answered(self)

    def complete_parts(self, parts: list[Part]) -> None:
        """Answer with the parts of a whole frame, which leave after the replies before it."""
        if len(parts) == 1 and isinstance(parts[0], bytes):
            self.complete(parts[0])
            return
        state, self.state = self.state, ANSWERED
        assert state != ANSWERED, "a request is answered twice"
        connection = self.connection
        if connection.closed:
            return
        self.parts = parts
        if state == NEW:
            connection.pending.append(self)
        if connection.parked is self:
            connection.parked = None
        connection.release_complete()
        self.api.node.ready.append(connection)
        metrics = self.api.metrics
        metrics.count_parts(parts)
        if self.is_timed:
            metrics.answered(self)
