"""A connection between a simulated client and the node: the bytes under way, both ways."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ottla.broker.connection import Connection
from ottla.log.slice import FileSlice
from ottla.sim.disk_file import SimFile
from ottla.sim.exchange import Exchange


class Handled(NamedTuple):
    """A request the node took: its reply begins at part `start` of the connection's output.

    `number` counts the requests in the order the node took them.
    """

    channel: SimChannel
    exchange: Exchange
    start: int
    end: int
    handled_ms: float
    number: int


class SimChannel:
    """What a socket and the edge's state about it are together.

    `inbox` is what arrived and was not received; `buffer` holds the start of what is to
    handle, `need` bytes of it before there is something to do. `requests` are the client's
    exchanges whose frames the node has not taken yet, in order.
    """

    __slots__ = (
        "buffer",
        "closed",
        "connection",
        "deliver",
        "eof",
        "inbox",
        "need",
        "number",
        "on_close",
        "parked",
        "requests",
        "slow",
        "unsent",
        "writing",
    )

    def __init__(
        self,
        number: int,
        connection: Connection,
        deliver: Callable[[bytes], None],
        on_close: Callable[[], None],
    ) -> None:
        self.number = number
        self.connection = connection
        self.deliver = deliver
        self.on_close = on_close
        self.inbox = bytearray()
        self.buffer: bytearray | None = None
        self.need = 0
        self.requests: deque[Exchange] = deque()
        self.parked: Handled | None = None
        self.unsent = b""
        self.writing = False
        self.slow = False
        self.eof = False
        self.closed = False
        connection.edge = self

    def parts_from(self, start: int, end: int | None = None) -> bytes:
        """The output from one part to another as bytes, read without anybody noticing."""
        return b"".join(_bytes_of(part) for part in self.connection.out[start:end])

    def drop_parts(self, count: int) -> None:
        """The first parts of the output have been sent."""
        del self.connection.out[:count]
        if self.parked is not None:
            self.parked = self.parked._replace(start=max(self.parked.start - count, 0))


def _bytes_of(part: bytes | FileSlice) -> bytes:
    if isinstance(part, FileSlice):
        file = part.file
        assert isinstance(file, SimFile)
        return file.peek(part.length, part.position)
    return part
