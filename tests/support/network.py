"""An engine without a broker: streams in memory, and a node that echoes."""

from __future__ import annotations

from collections.abc import Callable
from errno import ECONNRESET

from ottla.broker.connection import LARGE_REPLY_BYTES, Connection
from ottla.network.buffers import RequestBuffers
from ottla.network.channel import Channel
from ottla.network.engine import Engine
from ottla.network.limits import ConnectionLimits
from ottla.network.slow_readers import MOST_UNSENT_BYTES, MOST_UNSENT_RANGES
from ottla.ports import Buffer, File
from ottla.replication.timers import Timers
from ottla.wire.primitives import DecodeError

LARGEST = 1_000_000


class FakeStream:
    """Bytes in, bytes out; `room` is how many more it takes, without limit if negative."""

    numbers = 0

    def __init__(self) -> None:
        FakeStream.numbers += 1
        self._number = FakeStream.numbers
        self.inbox = bytearray()
        self.eof = False
        self.is_broken = False
        self.sent = b""
        self.room = -1
        self.closed = False

    def fileno(self) -> int:
        return self._number

    def recv_into(self, view: memoryview, /) -> int:
        if self.is_broken:
            raise OSError(ECONNRESET, "reset")
        count = min(len(view), len(self.inbox))
        if count == 0 and not self.eof:
            raise BlockingIOError
        view[:count] = self.inbox[:count]
        del self.inbox[:count]
        return count

    def send(self, data: Buffer, /) -> int:
        if self.is_broken:
            raise OSError(ECONNRESET, "reset")
        count = len(data) if self.room < 0 else min(len(data), self.room)
        if count == 0:
            raise BlockingIOError
        self.room -= count if self.room >= 0 else 0
        self.sent += bytes(data[:count])
        return count

    send_more = send

    def send_file(self, file: File, position: int, length: int, /) -> int:
        return self.send(file.pread(length, position))

    def close(self) -> None:
        self.closed = True


class FakePoller:
    def __init__(self) -> None:
        self.interests: dict[int, int] = {}
        self.events = False

    def register(self, fileno: int, interest: int) -> None:
        assert fileno not in self.interests
        self.interests[fileno] = interest

    def modify(self, fileno: int, interest: int) -> None:
        assert fileno in self.interests
        self.interests[fileno] = interest

    def unregister(self, fileno: int) -> None:
        del self.interests[fileno]

    def has_events(self) -> bool:
        return self.events


class EchoNode:
    """Answers each request with its own frame, and remembers everything."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.ready: list[Connection] = []
        self.monotonic_ms = 0.0
        self.reports: list[str] = []
        self.report = self.reports.append
        self.handled: list[bytes] = []
        self.settlings = 0
        self.put_off: list[Callable[[], None]] = []
        self.closed: list[Connection] = []

    def handle(
        self, connection: Connection, buffer: bytearray, view: memoryview, start: int, end: int
    ) -> None:
        frame = bytes(view[start:end])
        if frame.startswith(b"garbage"):
            raise DecodeError("garbage")
        self.handled.append(frame)
        reply = len(frame).to_bytes(4) + frame
        connection.out.append(reply)
        if len(reply) > LARGE_REPLY_BYTES:
            connection.large_bytes += len(reply)

    def settle_replies(self) -> None:
        self.settlings += 1

    def run_put_off(self) -> None:
        put_off = list(self.put_off)
        self.put_off.clear()
        for action in put_off:
            action()

    def close_connection(self, connection: Connection) -> None:
        self.closed.append(connection)

    def pass_ms(self, duration_ms: float) -> None:
        self.monotonic_ms += duration_ms
        self.timers.run(self.monotonic_ms)


class World:
    """An engine and what is around it."""

    def __init__(
        self,
        queued_max_bytes: int = 10**8,
        max_idle_ms: int = -1,
        most_unsent_bytes: int = MOST_UNSENT_BYTES,
        most_unsent_ranges: int = MOST_UNSENT_RANGES,
        most_connections: int = 10,
    ) -> None:
        self.node = EchoNode()
        self.poller = FakePoller()
        self.buffers = RequestBuffers(queued_max_bytes)
        self.engine = Engine(
            self.node,
            self.poller,
            ConnectionLimits(most_connections, most_connections, {}, max_idle_ms),
            self.buffers,
            LARGEST,
            most_unsent_bytes=most_unsent_bytes,
            most_unsent_ranges=most_unsent_ranges,
        )

    def accept(self) -> tuple[FakeStream, Channel]:
        stream = FakeStream()
        channel = self.engine.accept(stream, "host", "PLAINTEXT")
        assert channel is not None
        return stream, channel

    def receive(self, channel: Channel, stream: FakeStream, data: bytes = b"") -> None:
        """Let bytes arrive, and the engine take one turn with them."""
        stream.inbox += data
        self.engine.receive(channel)

    def interest(self, channel: Channel) -> int:
        return self.poller.interests[channel.fileno]


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4) + body for body in bodies)
