"""Envelope, version 0: a request of a client that a broker of Apache Kafka passes on (KIP-590).

The request is inside with its own header, and so is the response. It is handled as if the client
had sent it here. A controller that is not active answers NOT_CONTROLLER: the broker asks another.
"""

from __future__ import annotations

from struct import Struct, error
from typing import TYPE_CHECKING

from ottla.broker.api import Api
from ottla.broker.connection import Connection, Part
from ottla.broker.context import ANSWERED, NEW, WAITING, RequestContext
from ottla.broker.handlers import SERVED
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.codec import decoder
from ottla.wire.messages.default_principal_data import DefaultPrincipalData
from ottla.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.wire.primitives import DecodeError, skip_tags

if TYPE_CHECKING:
    from ottla.broker.node import Node

_HEADER = Struct(">hhih")  # api key, version, correlation id, length of the client id
_SIZE_BYTES = 4


def handle(node: Node, request: EnvelopeRequest, context: RequestContext) -> None:
    """Handle the request inside; its response goes back inside an Envelope."""
    if not node.controller.is_active:
        raise ApiError(ErrorCode.NOT_CONTROLLER, "this is not the active controller")
    data = bytes(request.request_data)
    try:
        key, version, correlation_id, length = _HEADER.unpack_from(data, 0)
    except error as cause:
        raise DecodeError("the request in the Envelope is too short") from cause
    if key not in SERVED or not SERVED[key].is_forwarded:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"API {key} is not passed on to the controller")
    pipeline = node.controller_pipeline
    api = pipeline.api(key)
    if version not in api.decoders:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    inner = EnvelopedContext(api, _sender(request, context), version, correlation_id, context)
    start = _end_of_header(api, version, data, _HEADER.size + max(length, 0))
    body = data[start:]
    context.defer()
    api.metrics.request_bytes += len(data)
    pipeline.take_in_slices(api, inner, body)


def _end_of_header(api: Api, version: int, data: bytes, position: int) -> int:
    if version < api.first_flexible:
        return position
    return skip_tags(data, position, len(data))


def _sender(request: EnvelopeRequest, context: RequestContext) -> Connection:
    """Return the client that the request came from, as far as handlers ask for it."""
    address = bytes(request.client_host_address)
    sender = Connection(
        ".".join(str(byte) for byte in address) if len(address) == 4 else address.hex(":", 2),
        context.connection.listener,
    )
    principal = request.request_principal
    if principal:
        version = int.from_bytes(principal[:2], "big")
        if not 0 <= version <= DefaultPrincipalData.MAX_VERSION:
            raise ApiError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
        named, _ = decoder(DefaultPrincipalData, version)(bytes(principal), 2, len(principal))
        sender.principal = f"{named.type_}:{named.name}"
    return sender


class EnvelopedContext(RequestContext):
    """A request in an Envelope: its reply is that of the Envelope."""

    def __init__(
        self,
        api: Api,
        sender: Connection,
        version: int,
        correlation_id: int,
        outer: RequestContext,
    ) -> None:
        super().__init__(api, sender, version, correlation_id)
        self._outer = outer

    def wait(self) -> None:
        """Answer later."""
        assert self.state == NEW
        self.state = WAITING

    def defer(self) -> RequestContext:
        """Answer later."""
        if self.state == NEW:
            self.wait()
        return self

    @property
    def is_wanted(self) -> bool:
        """Whether somebody still waits for the reply."""
        return self._outer.is_wanted

    def disconnect(self, error: DecodeError) -> None:
        """Close the connection of the broker: what it passed on is not valid."""
        self.state = ANSWERED
        self._outer.disconnect(error)

    def complete(self, frame: bytes) -> None:
        """Answer with a whole frame, which goes into the Envelope without its size."""
        assert self.state != ANSWERED, "a request is answered twice"
        self.state = ANSWERED
        self._outer.send(EnvelopeResponse(response_data=frame[_SIZE_BYTES:]))
        metrics = self.api.metrics
        metrics.response_bytes += len(frame)
        if self.is_timed:
            metrics.answered(self)

    def complete_parts(self, parts: list[Part]) -> None:
        """Answer with the parts of a whole frame; what is passed on has none in files."""
        self.complete(b"".join(part for part in parts if isinstance(part, bytes)))
