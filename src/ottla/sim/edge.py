"""Drives a node the way the reactor does, with simulated connections in place of sockets.

A wake-up: time is read and timers run, results of background work are handed over, every
readable connection is received into one shared arena and its whole frames are handled, the
node settles, then replies leave, then those who waited for what was committed. Buffers are
overwritten as soon as the node has settled, so whoever keeps bytes of a request longer
than allowed is found out.

After each settling `on_settled` gets what was answered: first the parked requests whose time
was over and the requests of this wake-up in the order they were handled, then the parked
ones that were completed by them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random as Generator
from struct import Struct
from typing import Final

from ottla.broker.connection import Connection
from ottla.broker.node import Node
from ottla.log.segment.file_slice import FileSlice
from ottla.sim.background import DeferredBackground
from ottla.sim.channel import Handled, SimChannel
from ottla.sim.exchange import Exchange, Violation
from ottla.wire.primitives import DecodeError

ARENA_BYTES: Final = 256 * 1024
CHUNK_BYTES: Final = 64 * 1024
SMALLEST_REQUEST: Final = 8
LARGEST_REQUEST: Final = 1024 * 1024
_SCRIBBLE: Final = b"\xee"
_SIZE = Struct(">i")


class SimEdge:
    """The edge of one node's life."""

    def __init__(self, node: Node, background: DeferredBackground, chance: Generator) -> None:
        self._node = node
        self._background = background
        self._chance = chance
        self._arena = bytearray(ARENA_BYTES)
        self._arena_view = memoryview(self._arena)
        self._arena_used = 0
        self._to_send: list[SimChannel] = []
        self._retired: list[bytearray] = []
        self._numbers = 0
        self._early: list[Handled] = []
        self.channels: list[SimChannel] = []
        self.handled: list[Handled] = []
        """Requests the node has begun to handle and not settled: a crash leaves them open."""
        self.on_settled: Callable[[list[Handled], list[Handled]], None] = lambda new, woken: None
        self.on_blocked: Callable[[SimChannel], None] = lambda channel: None
        self.on_refused: Callable[[Exchange | None, DecodeError], None] = lambda which, why: None
        """Hears of frames that were no requests; None when not even a length made sense."""

    # -- connections ---------------------------------------------------------------------

    def connect(
        self, listener: str, deliver: Callable[[bytes], None], on_close: Callable[[], None]
    ) -> SimChannel:
        """A new connection of a client."""
        self._numbers += 1
        connection = Connection(f"client-{self._numbers}", listener)
        channel = SimChannel(self._numbers, connection, deliver, on_close)
        self.channels.append(channel)
        return channel

    def close(self, channel: SimChannel) -> None:
        """End a connection, whatever it is doing."""
        if channel.closed:
            return
        self._node.close_connection(channel.connection)
        self.channels.remove(channel)
        channel.closed = True
        channel.connection.out.clear()
        self._drop_buffer(channel)
        channel.on_close()

    def readable(self) -> list[SimChannel]:
        """The connections the reactor would be woken up for."""
        return [
            channel
            for channel in self.channels
            if (channel.inbox or channel.eof)
            and channel.connection.takes_requests
            and not channel.writing
        ]

    # -- the wake-up ---------------------------------------------------------------------

    def wake(self, writable: list[SimChannel]) -> None:
        """One turn of the loop."""
        self._node.advance()
        self._early = self._take_replies()
        self._background.deliver()
        for channel in list(self.channels):
            if channel.eof and (channel.writing or not channel.connection.takes_requests):
                self.close(channel)
        for channel in writable:
            if not channel.closed and channel.writing:
                self._send(channel)
        ready = self.readable()
        self._chance.shuffle(ready)
        for channel in ready:
            if not channel.closed:
                self._receive(channel)
        self._settle()

    def _settle(self) -> None:
        node = self._node
        node.settle()
        self._tell()
        while self._to_send or node.ready:
            batch, self._to_send = self._to_send, []
            ready, node.ready = node.ready, []
            batch += [_channel_of(connection) for connection in ready]
            for channel in dict.fromkeys(batch):
                if not channel.closed:
                    self._send(channel)
            node.settle()
            self._tell()
        self._scribble()

    def _tell(self) -> None:
        """Say what was answered."""
        answered = self._take_replies()
        fresh, self.handled = self.handled, []
        new, self._early = self._early, []
        for handled in fresh:
            if handled.was_parked:
                if not handled.is_done:
                    handled.channel.parked = handled
            elif handled.is_done:
                new.append(handled)
        known = set(new)
        self.on_settled(new, [handled for handled in answered if handled not in known])

    def _take_replies(self) -> list[Handled]:
        """Return the requests that were answered since the last look."""
        answered = []
        for channel in self.channels:
            answered += channel.take_replies()
            if channel.parked is not None and channel.parked.is_done:
                channel.parked = None
        return answered

    def _scribble(self) -> None:
        """What the node has settled it must not look at again."""
        self._arena[: self._arena_used] = _SCRIBBLE * self._arena_used
        self._arena_used = 0
        for buffer in self._retired:
            buffer[:] = _SCRIBBLE * len(buffer)
        self._retired.clear()

    # -- receiving -----------------------------------------------------------------------

    def _receive(self, channel: SimChannel) -> None:
        if not channel.inbox:
            self.close(channel)
        elif channel.buffer is None:
            self._receive_fresh(channel)
        else:
            self._receive_rest(channel)

    def _take(self, channel: SimChannel, limit: int) -> bytes:
        """What one recv gives: all there is, or a part of it when the network dawdles."""
        limit = min(limit, len(channel.inbox))
        if channel.slow and limit > 1:
            limit = self._chance.randint(1, limit)
        data = bytes(channel.inbox[:limit])
        del channel.inbox[:limit]
        return data

    def _receive_fresh(self, channel: SimChannel) -> None:
        if ARENA_BYTES - self._arena_used < CHUNK_BYTES:
            self._settle()
            if channel.closed or not channel.connection.takes_requests:
                return
        start = self._arena_used
        data = self._take(channel, CHUNK_BYTES)
        end = self._arena_used = start + len(data)
        self._arena[start:end] = data
        position = self._handle(channel, self._arena, self._arena_view, start, end)
        if position < end and not channel.closed:
            self._keep(channel, self._arena, position, end)

    def _receive_rest(self, channel: SimChannel) -> None:
        assert channel.buffer is not None
        channel.buffer += self._take(channel, channel.need - len(channel.buffer))
        if len(channel.buffer) >= channel.need:
            self._handle_kept(channel)

    def _handle(
        self, channel: SimChannel, buffer: bytearray, view: memoryview, position: int, end: int
    ) -> int:
        connection = channel.connection
        out = connection.out
        try:
            while end - position >= 4 and connection.takes_requests:
                (size,) = _SIZE.unpack_from(buffer, position)
                if not SMALLEST_REQUEST <= size <= LARGEST_REQUEST:
                    refusal = DecodeError(f"a request of {size} bytes")
                    self.on_refused(None, refusal)
                    raise refusal
                stop = position + 4 + size
                if stop > end:
                    break
                self._handle_frame(channel, buffer, view, position + 4, stop)
                position = stop
                if connection.closing:
                    position = end
        except DecodeError:
            connection.closing = True
            self._to_send.append(channel)
            return end
        if out or connection.closing:
            self._to_send.append(channel)
        return position

    def _handle_frame(
        self, channel: SimChannel, buffer: bytearray, view: memoryview, start: int, end: int
    ) -> None:
        connection = channel.connection
        exchange = channel.requests.popleft()
        before = len(connection.out), len(connection.pending)
        handled = Handled(channel, exchange, self._node.monotonic_ms)
        self.handled.append(handled)
        if exchange.wants_reply:
            channel.owed.append(handled)
        try:
            self._node.handle(connection, buffer, view, start, end)
        except DecodeError as refusal:
            if (len(connection.out), len(connection.pending)) != before:
                raise Violation(f"{exchange!r}: answered and refused") from None
            self.handled.remove(handled)
            if exchange.wants_reply:
                channel.owed.pop()
            self.on_refused(exchange, refusal)
            raise
        handled.was_parked = connection.parked is not None

    def _keep(self, channel: SimChannel, source: bytearray, position: int, end: int) -> None:
        have = end - position
        size = _SIZE.unpack_from(source, position)[0] + 4 if have >= 4 else SMALLEST_REQUEST
        channel.need = max(size, have)
        channel.buffer = bytearray(source[position:end])

    def _handle_kept(self, channel: SimChannel) -> None:
        buffer = channel.buffer
        assert buffer is not None
        filled = len(buffer)
        # Not the buffer itself: a bytearray that somebody has a view of cannot grow.
        kept = bytearray(buffer)
        position = self._handle(channel, kept, memoryview(kept), 0, filled)
        if channel.closed:
            return
        channel.buffer = None
        self._retired.append(kept)
        if position < filled:
            self._keep(channel, kept, position, filled)

    def _drop_buffer(self, channel: SimChannel) -> None:
        channel.buffer = None
        channel.need = 0

    # -- sending -------------------------------------------------------------------------

    def _send(self, channel: SimChannel) -> None:
        try:
            done = self._send_parts(channel)
        except OSError:
            self.close(channel)
            return
        if not done:
            channel.writing = True
            self.on_blocked(channel)
            return
        channel.writing = False
        if channel.connection.closing:
            self.close(channel)
        elif (
            channel.connection.takes_requests
            and channel.buffer is not None
            and len(channel.buffer) >= channel.need
        ):
            self._handle_kept(channel)

    def _send_parts(self, channel: SimChannel) -> bool:
        """Send what the peer takes now; False when some is left."""
        out = channel.connection.out
        while channel.unsent or out:
            if not channel.unsent:
                channel.unsent = self._read(out[0])
                channel.drop_parts(1)
            data = channel.unsent
            if channel.slow and self._chance.random() < 0.3:
                taken = self._chance.randrange(len(data) + 1)
                channel.deliver(data[:taken])
                channel.unsent = data[taken:]
                return not (channel.unsent or out)
            channel.deliver(data)
            channel.unsent = b""
        return True

    def _read(self, part: bytes | FileSlice) -> bytes:
        if not isinstance(part, FileSlice):
            return part
        data = part.read()
        if len(data) != part.length:
            raise Violation(f"{part} gave {len(data)} bytes when it was sent")
        return data


def _channel_of(connection: Connection) -> SimChannel:
    channel = connection.edge
    assert isinstance(channel, SimChannel)
    return channel
