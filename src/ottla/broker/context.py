"""What a handler knows about a request besides its body."""

from __future__ import annotations

from ottla.broker.connection import Connection


class RequestContext:
    """Version, sender and time of one request."""

    __slots__ = ("client_id", "connection", "now_ms", "version")

    def __init__(
        self, connection: Connection, version: int, client_id: str | None, now_ms: int
    ) -> None:
        self.connection = connection
        self.version = version
        self.client_id = client_id
        self.now_ms = now_ms
