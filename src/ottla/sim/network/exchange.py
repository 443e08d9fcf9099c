"""A request as a client made it and, once the broker has decided, its reply."""

from __future__ import annotations

from struct import Struct

from ottla.wire.apis import ApiKey, response_class
from ottla.wire.codec import decoder, encoder
from ottla.wire.header import decode_response_header, request_header
from ottla.wire.message import Message

_SIZE = Struct(">i")


class Violation(AssertionError):
    """The broker did something it must never do."""


class Exchange:
    """One request. `frame` is what goes over the wire, its length in front.

    `request` is None for bytes that are no request; `reply` stays None until the node has
    settled, and for ever where no answer is wanted. `note` is the client's own.
    """

    __slots__ = (
        "api_key",
        "client",
        "correlation_id",
        "frame",
        "handled_ms",
        "note",
        "reply",
        "reply_frame",
        "request",
        "sent_ms",
        "version",
        "wants_reply",
    )

    def __init__(
        self,
        client: str,
        api_key: int,
        version: int,
        correlation_id: int,
        request: Message | None,
        frame: bytes,
        *,
        wants_reply: bool = True,
        note: object = None,
    ) -> None:
        self.client = client
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.request = request
        self.frame = frame
        self.wants_reply = wants_reply
        self.note = note
        self.sent_ms = 0.0
        """When the client sent it, on the time line."""
        self.handled_ms = 0.0
        """When the node took the request."""
        self.reply: Message | None = None
        self.reply_frame: bytes | None = None

    def __repr__(self) -> str:
        name = ApiKey(self.api_key).name if self.api_key in list(ApiKey) else self.api_key
        about = f" {self.note}" if isinstance(self.note, list) else brief(self.request)
        return f"{self.client}#{self.correlation_id} {name} v{self.version} {about}"

    def answer(self, frame: bytes) -> Message:
        """Take the reply; a Violation when it is not the reply to this request."""
        (size,) = _SIZE.unpack_from(frame)
        if size != len(frame) - 4:
            raise Violation(f"{self!r}: a reply of {len(frame) - 4} bytes says it has {size}")
        correlation_id, body = decode_response_header(
            self.api_key, self.version, frame, 4, len(frame)
        )
        if correlation_id != self.correlation_id:
            raise Violation(f"{self!r}: answered as {correlation_id}")
        reply, end = decoder(response_class(self.api_key), self.version)(frame, body, len(frame))
        if end != len(frame):
            raise Violation(f"{self!r}: {len(frame) - end} bytes after the reply")
        self.reply, self.reply_frame = reply, frame
        return reply


def brief(value: object) -> str:
    """Return a message as text, without default values and with long bytes as their length."""
    if isinstance(value, Message):
        plain = type(value)()
        fields = ((field.name, getattr(value, field.name)) for field in value.FIELDS)
        shown = [f"{n}={brief(v)}" for n, v in fields if v != getattr(plain, n)]
        return f"({', '.join(shown)})"
    if isinstance(value, list):
        return f"[{', '.join(map(brief, value))}]"
    if isinstance(value, bytes):
        return value[:3].hex() if len(value) == 16 else f"<{len(value)} bytes>"
    return repr(value)


def make_exchange(
    client: str,
    correlation_id: int,
    request: Message,
    version: int,
    *,
    wants_reply: bool = True,
    note: object = None,
) -> Exchange:
    """Return the exchange that begins with this request."""
    body = encoder(type(request), version)(request)
    header = request_header(request.API_KEY, version, correlation_id, client)
    frame = _SIZE.pack(len(header) + len(body)) + header + body
    return Exchange(
        client,
        request.API_KEY,
        version,
        correlation_id,
        request,
        frame,
        wants_reply=wants_reply,
        note=note,
    )
