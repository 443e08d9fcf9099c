"""Receiving: bytes become frames, and whole frames are handled where they were received.

Everything is received into one arena that all connections share. It is small until a wake-up
fills it, so that an idle broker needs little memory. Only a frame that came in pieces gets a
buffer of its own, which grows as bytes arrive. After a large frame the next one is received into
a buffer where it can stay, if a spare one of that size is there.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla.network.buffers import LITTLE_BYTES, SMALLEST_BYTES, next_size
from ottla.network.channel import Channel
from ottla.network.flow_control import takes_requests
from ottla.wire.discard import ONE_FRAME_BYTES, shrink
from ottla.wire.primitives import DecodeError

if TYPE_CHECKING:
    from ottla.network.engine import Engine

ARENA_BYTES: Final = 4 * 1024 * 1024
_FIRST_ARENA_BYTES: Final = 512 * 1024
CHUNK_BYTES: Final = 256 * 1024
LITTLE_CHUNK_BYTES: Final = 8 * 1024  # while others wait for memory
AHEAD: Final = 16  # a frame gets this many times the memory of what has arrived
SMALL_BYTES: Final = 512  # a larger request may have taken long
FEW_REPLIES: Final = 4  # to small requests of one connection between two looks how late it is
MOST_RECEIVED_BYTES: Final = 2 * 1024 * 1024  # of a frame in a buffer of its own in a wake-up
MOST_RETIRED_BYTES: Final = 8 * 1024 * 1024  # buffers that wait for the node to settle
MOST_LARGE_BYTES: Final = 16 * 1024 * 1024  # large replies of one wake-up before they are sent

_PAUSE_MS: Final = 0.05

_unpack_size: Final = Struct(">i").unpack_from


class Receiver:
    """Receives for all channels of an engine."""

    def __init__(self, engine: Engine, arena_bytes: int) -> None:
        self._engine = engine
        self._node = engine.node
        self._buffers = engine.buffers
        self._flow = engine.flow_control
        self._to_send = engine.to_send
        self._chunk_bytes = min(CHUNK_BYTES, arena_bytes)
        self._fresh_bytes = self._chunk_bytes
        self._most_arena_bytes = arena_bytes
        self._set_arena(min(_FIRST_ARENA_BYTES, arena_bytes))
        self.arena_used = 0
        """How much of the arena holds frames that are not settled."""
        self.kept_bytes = 0
        """The bytes in buffers of their own that were received and are not settled."""
        self.piece_bytes = 0
        """Those of frames that are not whole yet."""
        self.large_bytes = 0
        """The bytes of large replies that wait for the node to settle."""

    def settled(self) -> None:
        """Take note that the node has settled: nobody looks at the bytes of earlier frames."""
        self.arena_used = self.kept_bytes = self.piece_bytes = self.large_bytes = 0

    def receive_little(self) -> None:
        """Receive little at a time from now on: what cannot be handled takes memory."""
        self._set_fresh_bytes(min(LITTLE_CHUNK_BYTES, self._chunk_bytes))

    def receive_much(self) -> None:
        """Receive as much at a time as usual again."""
        self._set_fresh_bytes(self._chunk_bytes)

    def _set_arena(self, size: int) -> None:
        """Take a new arena. Nothing of the one before may be in use."""
        self._arena = bytearray(size)
        self._arena_view = memoryview(self._arena)
        self._last_start = size - self._chunk_bytes
        """Up to where the arena may be used for another chunk to fit."""
        self._set_fresh_bytes(self._fresh_bytes)

    def _set_fresh_bytes(self, count: int) -> None:
        self._fresh_bytes = count
        self._first_chunk = self._arena_view[:count]
        """Where the first bytes of a wake-up are received."""

    def receive(self, channel: Channel) -> bool:
        """Receive as much as one connection may before it is the turn of others, and handle it.

        Return whether that was a large frame, and another one may well be there.
        """
        connection = channel.connection
        if (
            channel.starved
            or connection.parked is not None
            or (
                (connection.pending or connection.out or connection.closing)
                and not takes_requests(channel)
            )
        ):
            self._flow.show_interest(channel)
            return False
        try:
            if channel.buffer is not None or channel.last_size > self._chunk_bytes:
                return self._receive_more(channel)
            channel.used_ms = self._node.monotonic_ms
            start = self.arena_used
            if start > self._last_start or self.large_bytes > MOST_LARGE_BYTES:
                if not self._empty_arena(channel):
                    return False
                start = self.arena_used
            room = self._fresh_bytes
            chunk = self._arena_view[start : start + room] if start else self._first_chunk
            recv_into = channel.recv_into
            count = recv_into(chunk)
            if count == 0:
                self._engine.close(channel)
                return False
            self.arena_used = end = start + count
            position = self._handle(channel, self._arena, self._arena_view, start, end)
            if position < end and not channel.closed:
                self._keep(channel, self._arena_view, position, end)
                if count == self._chunk_bytes and self._may_go_on(channel):
                    self._receive_rest(channel)  # the frame that did not fit goes on
        except BlockingIOError:
            return False
        except OSError as error:
            channel.error = error
            self._engine.close(channel)
        return False

    def _receive_more(self, channel: Channel) -> bool:
        """Receive more of a frame that has a buffer of its own, or is expected to need one."""
        if self._buffers.retired_bytes >= MOST_RETIRED_BYTES:
            self._engine.settle()
            if channel.closed or channel.starved or not takes_requests(channel):
                return False
        if channel.buffer is not None:
            if channel.filled >= channel.need:
                self.handle_kept(channel)
                return False
            self._receive_rest(channel)
        elif self._expects_large(channel):
            self._receive_large(channel)
        else:
            channel.last_size = 0
            return self.receive(channel)
        return channel.buffer is None and channel.last_size > self._chunk_bytes

    def _may_go_on(self, channel: Channel) -> bool:
        """Return True if more of the frame that has begun can be received now."""
        return (
            channel.buffer is not None
            and channel.filled < channel.need
            and not channel.starved
            and takes_requests(channel)
        )

    def _empty_arena(self, channel: Channel) -> bool:
        """Settle to make room for another chunk; return True if the channel still receives."""
        is_full = self.arena_used > self._last_start
        self._engine.settle()
        if is_full and len(self._arena) < self._most_arena_bytes:
            self._set_arena(self._most_arena_bytes)
        return not channel.closed and channel.buffer is None and takes_requests(channel)

    def _expects_large(self, channel: Channel) -> bool:
        """Expect another large frame after one, if a buffer for it is spare."""
        size = channel.last_size
        return self._buffers.has_spare(size) and self._flow.reserve(channel, size)

    def _receive_large(self, channel: Channel) -> None:
        """Receive what is probably a large frame where it can stay, instead of in the arena."""
        size = channel.last_size
        buffer = self._buffers.take(size)
        view = memoryview(buffer)
        try:
            count = channel.recv_into(view[:size])
        except OSError:
            self._buffers.give(buffer)
            self._buffers.unreserve(channel.reserved)
            channel.reserved = 0
            raise
        channel.buffer, channel.view = buffer, view
        if count == 0:
            self._engine.close(channel)
            return
        channel.used_ms = self._node.monotonic_ms
        channel.filled = count
        channel.need = _frame_bytes(channel, view, 0, count)
        if count >= min(channel.need, len(view)):
            self.handle_kept(channel)

    def _receive_rest(self, channel: Channel) -> None:
        """Receive just the rest of a frame that arrives in pieces."""
        view = channel.view
        assert view is not None
        stop = min(channel.need, channel.filled + MOST_RECEIVED_BYTES)
        count = channel.recv_into(view[channel.filled : stop])
        if count == 0:
            self._engine.close(channel)
            return
        before = channel.filled
        channel.filled = filled = before + count
        if filled >= channel.need or filled // LITTLE_BYTES > before // LITTLE_BYTES:
            channel.used_ms = self._node.monotonic_ms
        if filled < channel.need:
            self.kept_bytes += count
            self.piece_bytes += count
        if filled >= min(channel.need, len(view)):
            self.handle_kept(channel)

    def _handle(
        self, channel: Channel, buffer: bytearray, view: memoryview, position: int, end: int
    ) -> int:
        """Handle the whole frames in [position, end) as far as the connection takes them."""
        connection = channel.connection
        handle = channel.handle
        smallest, largest = channel.smallest_frame, channel.largest_frame
        few = FEW_REPLIES
        try:
            while end - position >= 4:
                size = _unpack_size(buffer, position)[0]
                if not smallest <= size <= largest:
                    raise DecodeError(f"a frame of {size} bytes")
                stop = position + 4 + size
                if stop > end:
                    break
                handle(connection, buffer, view, position + 4, stop)
                position = stop
                if connection.closing:
                    position = end
                if position == end or connection.parked is not None or connection.large_bytes:
                    break
                replies = max(len(connection.out), len(connection.pending))
                if replies >= channel.most_replies:
                    break
                few -= 1
                if few <= 0 or size > SMALL_BYTES:
                    if self._engine.is_late(0):
                        self._engine.to_resume.append(channel)
                        break
                    few = FEW_REPLIES
        except DecodeError as error:
            self._engine.refuse(channel, error)
            return end
        if connection.out or connection.closing:
            self._to_send.append(channel)
        if connection.large_bytes:
            self.large_bytes += connection.large_bytes
        return position

    def _keep(self, channel: Channel, view: memoryview, position: int, end: int) -> None:
        """Move what is not handled yet into a buffer of the channel's own."""
        have = end - position
        channel.need = _frame_bytes(channel, view, position, have)
        # A length alone gets little memory: what has arrived says how much more to expect.
        capacity = channel.need
        if not self._buffers.has_spare(capacity):
            capacity = min(capacity, max(SMALLEST_BYTES, AHEAD * have))
        allowed = self._flow.reserve(channel, capacity)
        if not allowed:
            capacity = have  # that is received already
            self._buffers.exceed(capacity)
            channel.reserved = capacity
        channel.buffer = self._buffers.take(capacity)
        channel.view = memoryview(channel.buffer)
        channel.view[:have] = view[position:end]
        channel.filled = have
        if not allowed:
            self._flow.starve(channel)

    def handle_kept(self, channel: Channel) -> None:
        """Handle the channel's own buffer: it holds a whole frame, or is full."""
        buffer, view = channel.buffer, channel.view
        assert buffer is not None
        assert view is not None
        filled = channel.filled
        if filled < channel.need:
            self._grow(channel)
            return
        channel.last_size = channel.need
        self.kept_bytes += filled
        position = self._handle(channel, buffer, view, 0, filled)
        if channel.closed:
            return
        self.drop_buffer(channel)
        if position < filled:
            self._keep(channel, view, position, filled)

    def _grow(self, channel: Channel) -> None:
        """Take a larger buffer, if that is allowed: this one is full and the frame is not."""
        assert channel.buffer is not None
        assert channel.view is not None
        size = next_size(len(channel.buffer), channel.need)
        if not self._flow.reserve(channel, size):
            self._flow.starve(channel)
            return
        larger = self._buffers.take(size)
        view = memoryview(larger)
        view[: channel.filled] = channel.view[: channel.filled]
        self._buffers.retire(channel.buffer)
        channel.buffer, channel.view = larger, view

    def drop_buffer(self, channel: Channel) -> None:
        """Give the buffer back after the next settling, and its reservation at once."""
        if channel.buffer is not None:
            self._buffers.unreserve(channel.reserved)
            self._buffers.retire(channel.buffer)
            if len(channel.buffer) > ONE_FRAME_BYTES:
                self._shrink_later(channel.buffer)
            channel.buffer = channel.view = None
            channel.filled = channel.need = channel.reserved = 0

    def _shrink_later(self, buffer: bytearray) -> None:
        """Free a large buffer in parts, after this wake-up: all at once would hold the loop."""

        def shrink_now() -> None:
            if shrink(buffer):
                self._shrink_later(buffer)

        self._node.timers.at(self._node.monotonic_ms + _PAUSE_MS, shrink_now)


def _frame_bytes(channel: Channel, view: memoryview, position: int, have: int) -> int:
    """Return how many bytes there must be before there is something to handle.

    That is at least `have`. A frame with an invalid length is handled at once, which refuses it.
    """
    if have < 4:
        return channel.smallest_frame
    size: int = _unpack_size(view, position)[0]
    return max(size + 4, have) if size <= channel.largest_frame else have
