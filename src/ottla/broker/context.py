"""What a handler knows about a request besides its body, and how to answer it later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.connection import Connection
from ottla.wire.header import RequestHeader
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.broker.node import Node


class RequestContext:
    """Version, sender and time of one request."""

    __slots__ = ("_header", "_node", "client_id", "connection", "now_ms", "version")

    def __init__(self, node: Node, connection: Connection, header: RequestHeader) -> None:
        self._node = node
        self._header = header
        self.connection = connection
        self.version = header.api_version
        self.client_id = header.client_id
        self.now_ms = node.wall_ms

    def defer(self) -> DeferredReply:
        """Answer later: the handler returns None, the connection takes no further requests."""
        reply = DeferredReply(self._node, self.connection, self._header)
        self.connection.parked = reply
        return reply


class DeferredReply:
    """A reply that is owed. `send` it once, from a timer, another request or a commit."""

    __slots__ = ("_connection", "_header", "_node")

    def __init__(self, node: Node, connection: Connection, header: RequestHeader) -> None:
        self._node = node
        self._connection = connection
        self._header = header

    def send(self, response: Message) -> None:
        """Answer, and let the connection go on; nothing happens if the peer has gone."""
        connection = self._connection
        if connection.parked is not self:
            return
        connection.parked = None
        header = self._header
        self._node.router.reply(
            connection, header.api_key, header.api_version, header.correlation_id, response
        )
        self._node.ready.append(connection)

    @property
    def is_wanted(self) -> bool:
        """Whether somebody still waits for it."""
        return self._connection.parked is self

    def abandon(self) -> None:
        """Parked: the connection is gone."""
        self._connection.parked = None
