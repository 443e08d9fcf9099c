"""One request under way: what is known about it besides its body, and the reply it gets.

    handled at once     `send` right away: the handler returns its response
    waiting             `wait`: the handler returns None; requests behind this one are handled
    parked              `defer`: likewise, but requests behind this one wait for its reply
    in slices           the handler is a generator: if it does not end in this wake-up, the request
                        is parked until then (`run_in_slices`)

A waiting or parked request is answered once, by `send` or `complete`, from a timer, from another
request, or when its records are written or committed. Its state:

    NEW      -> WAITING     `wait`, `defer`
    NEW      -> ANSWERED    `send`, `send_body`, `complete`, `complete_parts`
    WAITING  -> ANSWERED    the same
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Final

from ottla.broker.connection import LARGE_REPLY_BYTES, Connection, Part
from ottla.model.errors import ApiError
from ottla.model.steps import Steps
from ottla.wire.codec import EncodeError, encoder, step_encoder
from ottla.wire.message import Message
from ottla.wire.primitives import DecodeError

if TYPE_CHECKING:
    from ottla.broker.api import Api
    from ottla.model.acl import AclOperation, AclResourceType

_pack_legacy: Final = Struct(">ii").pack  # size, correlation id
_pack_flexible: Final = Struct(">iib").pack  # the same, tags

_MOST_COPIED_BYTES: Final = 256 * 1024
"""A larger response is not copied: that takes half a millisecond for each megabyte."""

NEW: Final = 0
WAITING: Final = 1
ANSWERED: Final = 2


class RequestContext:
    """Version, sender and time of one request, and its reply.

    There is one for every request. Defaults that few requests read are attributes of the class,
    which costs less than setting them for each request. Those that all requests read are set: an
    attribute of the object is read much faster than one of its class.
    """

    client_id: str | None = None
    received_ms = 0.0
    handled_ms: float | None = None
    """When the handler of a timed request returned; None before."""
    parts: list[Part] | None = None
    """The reply, if it is complete and waits for replies before it."""

    def __init__(self, api: Api, connection: Connection, version: int, correlation_id: int) -> None:
        self.api = api
        self.node = api.node
        self.connection = connection
        self.version = version
        self.correlation_id = correlation_id
        self.state = NEW
        self.throttle_ms = 0
        self.is_timed = False

    @property
    def now_ms(self) -> int:
        """The wall time of this wake-up."""
        return self.node.wall_ms

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
        """Answer later; requests behind this one wait until then.

        A request that is handled in slices may be parked already.
        """
        if self.state != WAITING:
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
        if self.throttle_ms and hasattr(response, "throttle_time"):
            response.throttle_time = self.throttle_ms
        try:
            body = encoder(type(response), self.version)(response)
        except EncodeError as error:
            self._disconnect_without(error)
        else:
            self.send_body(body)

    def send_in_slices(self, response: Message) -> Steps[None]:
        """Answer with a message that may be large."""
        if self.throttle_ms and hasattr(response, "throttle_time"):
            response.throttle_time = self.throttle_ms
        try:
            body = yield from step_encoder(type(response), self.version)(response)
        except EncodeError as error:
            self._disconnect_without(error)
        else:
            self.send_body(body)

    def run_in_slices(self, steps: Steps[None]) -> None:
        """Do what answers this request a few milliseconds at a time; stop if the peer goes."""
        connection = self.connection
        is_done = self.node.sliced_work.run(steps, lambda: not connection.closed)
        if not is_done and self.state == NEW:
            self.defer()

    def disconnect(self, error: DecodeError) -> None:
        """Close the connection after the replies before this one: the request is not valid."""
        connection = self.connection
        if connection.closed:
            return
        if self.state == WAITING:
            connection.pending.remove(self)
        self.state = ANSWERED
        connection.close_after_replies(str(error))
        self.node.ready.append(connection)

    def _disconnect_without(self, error: EncodeError) -> None:
        """Close the connection if a value has no room in this version of the response (ADR 16).

        Everything else is done by now. For the client it is as if the response was lost.
        """
        if not isinstance(error.__cause__, struct_error):
            raise error
        self.disconnect(DecodeError(f"the response cannot be sent: {error}"))

    def send_body(self, body: bytes) -> None:
        """Answer with a response that is encoded already, but for its header."""
        if self.version >= self.api.first_flexible_response:
            head = _pack_flexible(5 + len(body), self.correlation_id, 0)
        else:
            head = _pack_legacy(4 + len(body), self.correlation_id)
        if len(body) > _MOST_COPIED_BYTES:
            self.complete_parts([head, body])
        else:
            self.complete(head + body)

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
            self.node.ready.append(connection)
        else:
            assert self.state == NEW, "a request is answered twice"
            self.state = ANSWERED
            if pending:
                self.parts = [frame]
                pending.append(self)
            else:
                connection.out.append(frame)
        size = len(frame)
        if size > LARGE_REPLY_BYTES:
            connection.large_bytes += size
        metrics = self.api.metrics
        metrics.response_bytes += size
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
        in_memory = in_files = 0
        for part in parts:
            if isinstance(part, bytes):
                in_memory += len(part)
            else:
                in_files += part.length
        if in_memory > LARGE_REPLY_BYTES:
            connection.large_bytes += in_memory
        self.parts = parts
        if state == NEW:
            connection.pending.append(self)
        else:
            if connection.parked is self:
                connection.parked = None
            self.node.ready.append(connection)
        connection.release_complete()
        metrics = self.api.metrics
        metrics.response_bytes += in_memory + in_files
        if self.is_timed:
            metrics.answered(self)
