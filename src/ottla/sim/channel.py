"""A connection between a simulated client and the node: the bytes under way, both ways."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ottla.broker.connection import Connection
from ottla.log.segment.file_slice import FileSlice
from ottla.sim.disk_file import SimFile
from ottla.sim.exchange import Exchange


class Handled:
    """A request the node took, and its reply as soon as there is one."""

    __slots__ = ("channel", "exchange", "frame", "handled_ms", "was_parked")

    def __init__(self, channel: SimChannel, exchange: Exchange, handled_ms: float) -> None:
        self.channel = channel
        self.exchange = exchange
        self.handled_ms = handled_ms
        self.frame = b""
        self.was_parked = False

    @property
    def is_done(self) -> bool:
        """Whether nothing more is to come."""
        return bool(self.frame) or not self.exchange.wants_reply


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
        "owed",
        "parked",
        "requests",
        "seen",
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
        self.owed: deque[Handled] = deque()
        self.seen = 0
        self.parked: Handled | None = None
        self.unsent = b""
        self.writing = False
        self.slow = False
        self.eof = False
        self.closed = False
        connection.edge = self

    def take_replies(self) -> list[Handled]:
        """Match the replies that may be sent now with their requests, in order."""
        data = b"".join(_bytes_of(part) for part in self.connection.out[self.seen :])
        self.seen = len(self.connection.out)
        answered = []
        while data:
            end = 4 + int.from_bytes(data[:4])
            handled = self.owed.popleft()
            handled.frame, data = data[:end], data[end:]
            answered.append(handled)
        return answered

    def drop_parts(self, count: int) -> None:
        """Forget the first parts of the output: they have been sent."""
        del self.connection.out[:count]
        self.seen -= count


def _bytes_of(part: bytes | FileSlice) -> bytes:
    if isinstance(part, FileSlice):
        file = part.file
        assert isinstance(file, SimFile)
        return file.peek(part.length, part.position)
    return part
