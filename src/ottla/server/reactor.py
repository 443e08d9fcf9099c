"""The loop: one thread, epoll, every ready request handled, one group commit, then the replies.

What arrives is received into one shared arena and handled in place; only a frame that
came in pieces gets a buffer of its own. Within a wake-up nothing is sent before the node
has settled, so an acknowledgement never leaves before its bytes are written, and no
buffer is reused before that either.
"""

from __future__ import annotations

import select
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from os import close as os_close
from os import eventfd, eventfd_read, eventfd_write
from struct import Struct
from typing import Final

from ottla.broker.connection import MOST_REPLIES, Connection
from ottla.broker.node import Node
from ottla.server.buffers import RequestBuffers
from ottla.server.channel import Channel
from ottla.server.complaints import Complaints
from ottla.server.limits import ConnectionLimits
from ottla.server.listener import Listener
from ottla.server.waiting import Waiting
from ottla.wire.primitives import DecodeError

ARENA_BYTES: Final = 4 * 1024 * 1024
CHUNK_BYTES: Final = 256 * 1024
LITTLE_BYTES: Final = 64 * 1024  # what a frame may take before much of it has arrived
MOST_RETIRED_BYTES: Final = 8 * 1024 * 1024  # buffers that wait for the group commit
MOST_STREAMED: Final = 3  # large frames of one connection that are answered with the one before
SMALLEST_REQUEST: Final = 8
STALLED_MS: Final = 5000
STALL_CHECK_MS: Final = 500

_SIZE = Struct(">i")
_READ: Final = select.EPOLLIN | select.EPOLLRDHUP
_MUTED: Final = select.EPOLLRDHUP
_WRITE: Final = select.EPOLLOUT
_GONE: Final = select.EPOLLHUP | select.EPOLLERR


class Reactor:
    """Drives a node with real sockets until it is told to stop."""

    def __init__(
        self,
        node: Node,
        listeners: Iterable[Listener],
        limits: ConnectionLimits,
        buffers: RequestBuffers,
        max_request_bytes: int,
    ) -> None:
        self._node = node
        self._listeners = {listener.fd: listener for listener in listeners}
        self._limits = limits
        self._buffers = buffers
        self._max_request_bytes = max_request_bytes
        self._complaints = Complaints(node)
        self._channels: dict[int, Channel] = {}
        self._arena = bytearray(ARENA_BYTES)
        self._arena_view = memoryview(self._arena)
        self._arena_used = 0
        self._to_send: list[Channel] = []
        self._retired: list[bytearray] = []
        self._retired_bytes = 0
        self._starved: deque[Channel] = deque()
        self._feed_soon = False
        self._epoll = select.epoll()
        self._wake_fd = eventfd(0)
        self._calls: deque[Callable[[], None]] = deque()
        self._running = True
        self._epoll.register(self._wake_fd, select.EPOLLIN)

    # -- from other threads and signal handlers ------------------------------------------

    def call(self, action: Callable[[], None]) -> None:
        """Run `action` on the loop soon; safe from any thread."""
        self._calls.append(action)
        self.wake()

    def wake(self) -> None:
        eventfd_write(self._wake_fd, 1)

    def stop(self) -> None:
        """End the loop after the current wake-up; safe from any thread."""
        self.call(self._end)

    def _end(self) -> None:
        self._running = False

    # -- the loop ------------------------------------------------------------------------

    def open(self) -> None:
        """Let clients connect; they are served once the loop runs."""
        for listener in self._listeners.values():
            listener.listen()
            self._epoll.register(listener.fd, select.EPOLLIN)

    def run(self) -> None:
        """Serve until stopped."""
        node = self._node
        wait = Waiting(self._epoll.poll).wait
        channels = self._channels
        self._schedule_idle_check()
        awake = False
        while self._running:
            events = wait(self._timeout_s, awake=awake)
            node.advance()
            for fd, event in events:
                channel = channels.get(fd)
                if channel is None:
                    self._other(fd)
                elif event & _WRITE:
                    self._send(channel)
                elif event & select.EPOLLIN:
                    if self._receive(channel) and len(events) == 1:
                        self._stream(channel)
                elif event & (_GONE | select.EPOLLRDHUP):
                    self._close(channel)
            awake = 0 < self._arena_used <= LITTLE_BYTES  # small requests, none that is arriving
            self._settle()
        self._settle()

    def _timeout_s(self) -> float:
        deadline_ms = self._node.next_deadline_ms()
        if deadline_ms is None:
            return -1
        return max(0.0, deadline_ms - self._node.clock.monotonic_ms()) / 1000

    def _other(self, fd: int) -> None:
        if fd == self._wake_fd:
            eventfd_read(self._wake_fd)
            while self._calls:
                self._calls.popleft()()
        elif fd in self._listeners:
            self._accept(self._listeners[fd])

    def _settle(self) -> None:
        """Group commit, then replies, then those who waited for what was committed."""
        node = self._node
        node.settle()
        self._arena_used = 0
        while self._to_send or node.ready:
            # Each channel once: sending may handle a kept request, whose reply is not settled.
            channels = dict.fromkeys(self._to_send)
            channels.update((connection.edge, None) for connection in node.ready)  # type: ignore[misc]
            self._to_send, node.ready = [], []
            for channel in channels:
                if not channel.closed:
                    self._send(channel)
            node.settle()
        if self._retired:
            self._reuse_retired()
        if self._feed_soon:
            self._feed_soon = False
            self._feed_starved()

    def _reuse_retired(self) -> None:
        """The node has settled: buffers of requests that were handled may be overwritten."""
        for buffer in self._retired:
            self._buffers.give(buffer)
        self._retired.clear()
        self._retired_bytes = 0
        self._feed_soon = True

    # -- connections ---------------------------------------------------------------------

    def _accept(self, listener: Listener) -> None:
        while True:
            try:
                accepted = listener.accept()
            except OSError as error:  # out of file descriptors: try again when there are some
                self._complaints.add(f"cannot accept a connection: {error.strerror}")
                self._pause(listener)
                return
            if accepted is None:
                return
            sock, host = accepted
            refusal = self._limits.admit(host)
            if refusal is not None:
                self._complaints.add(refusal)
                sock.close()
                continue
            connection = Connection(host, listener.name)
            channel = Channel(sock, connection, _READ)
            connection.edge = channel
            channel.used_ms = self._node.monotonic_ms
            self._channels[channel.fd] = channel
            self._epoll.register(channel.fd, _READ)

    def _pause(self, listener: Listener) -> None:
        self._epoll.modify(listener.fd, 0)
        self._node.timers.at(
            self._node.monotonic_ms + 1000,
            lambda: self._epoll.modify(listener.fd, select.EPOLLIN),
        )

    def _close(self, channel: Channel) -> None:
        if channel.closed:
            return
        self._node.close_connection(channel.connection)
        del self._channels[channel.fd]
        self._epoll.unregister(channel.fd)
        self._drop_buffer(channel)
        self._limits.leave(channel.connection.peer_host)
        channel.close()
        if channel.muted:
            self._starved.remove(channel)

    def _schedule_idle_check(self) -> None:
        every_ms = self._limits.idle_check_ms
        if every_ms is not None:
            self._node.timers.at(self._node.clock.monotonic_ms() + every_ms, self._close_idle)

    def _close_idle(self) -> None:
        oldest_ms = self._node.monotonic_ms - self._limits.max_idle_ms
        for channel in list(self._channels.values()):
            if channel.used_ms < oldest_ms and not channel.connection.pending:
                self._close(channel)
        self._schedule_idle_check()

    # -- receiving -----------------------------------------------------------------------

    def _receive(self, channel: Channel) -> bool:
        """Take what has arrived, as far as one connection may before others have their turn.

        Says whether that was a large frame, and another one may well be there.
        """
        if not channel.connection.takes_requests or channel.muted:
            self._mute(channel)
            return False
        channel.used_ms = self._node.monotonic_ms
        try:
            if channel.buffer is not None or channel.last_size > CHUNK_BYTES:
                return self._receive_more(channel)
            if self._receive_fresh(channel) == CHUNK_BYTES and self._may_go_on(channel):
                self._receive_rest(channel)  # the frame that did not fit goes on
        except BlockingIOError:
            return False
        except OSError:
            self._close(channel)
        return False

    def _receive_more(self, channel: Channel) -> bool:
        """Receive of a frame that has a buffer of its own, or is expected to need one."""
        if self._retired_bytes >= MOST_RETIRED_BYTES:
            self._settle()
            if not channel.connection.takes_requests or channel.muted:
                return False
        if channel.buffer is not None:
            self._receive_rest(channel)
        elif self._expect_large(channel):
            self._receive_large(channel)
        else:
            channel.last_size = 0
            self._receive_fresh(channel)
            return False
        return channel.buffer is None and channel.last_size > CHUNK_BYTES

    def _stream(self, channel: Channel) -> None:
        """Large frames of a connection that has the broker to itself: answered a few at a time.

        Each is committed at once, while its bytes are in the processor's cache, and its buffer
        serves the next one.
        """
        for _ in range(MOST_STREAMED):
            self._node.settle()
            self._arena_used = 0
            self._reuse_retired()
            if self._node.ready or channel.closed or channel.connection.closing:
                return
            if not self._receive(channel):
                return

    def _may_go_on(self, channel: Channel) -> bool:
        """Whether a frame has begun that more may be received of at once."""
        return (
            channel.buffer is not None
            and channel.filled < channel.need
            and not channel.muted
            and channel.connection.takes_requests
        )

    def _expect_large(self, channel: Channel) -> bool:
        """After a large frame expect another one, if a buffer for it lies ready."""
        size = channel.last_size
        return self._buffers.has_spare(size) and self._reserve(channel, size)

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
            self._close(channel)
            return
        channel.filled = count
        channel.need = self._frame_bytes(view, 0, count)
        if count >= min(channel.need, len(view)):
            self._handle_kept(channel)

    def _receive_fresh(self, channel: Channel) -> int:
        """Nothing is pending: receive into the arena and handle it there; how much it was."""
        start = self._arena_used
        if ARENA_BYTES - start < CHUNK_BYTES:
            self._settle()
            start = 0
        count = channel.recv_into(self._arena_view[start : start + CHUNK_BYTES])
        if count == 0:
            self._close(channel)
            return 0
        end = self._arena_used = start + count
        position = self._handle(channel, self._arena, self._arena_view, start, end)
        if position < end and not channel.closed:
            self._keep(channel, self._arena_view, position, end)
        return count

    def _receive_rest(self, channel: Channel) -> None:
        """A frame is arriving in pieces: receive just its rest."""
        view = channel.view
        assert view is not None
        count = channel.recv_into(view[channel.filled : channel.need])
        if count == 0:
            self._close(channel)
            return
        channel.filled += count
        if channel.filled >= min(channel.need, len(view)):
            self._handle_kept(channel)

    def _handle(
        self, channel: Channel, buffer: bytearray, view: memoryview, position: int, end: int
    ) -> int:
        """Handle the whole frames in [position, end) as far as the connection lets us."""
        connection = channel.connection
        out, pending = connection.out, connection.pending
        handle = self._node.handle
        largest = self._max_request_bytes
        try:
            while (
                end - position >= 4
                and connection.parked is None
                and len(out) < MOST_REPLIES
                and len(pending) < MOST_REPLIES
            ):
                size = _SIZE.unpack_from(buffer, position)[0]
                if not SMALLEST_REQUEST <= size <= largest:
                    raise DecodeError(f"a request of {size} bytes")
                stop = position + 4 + size
                if stop > end:
                    break
                handle(connection, buffer, view, position + 4, stop)
                position = stop
                if connection.closing:
                    position = end
        except DecodeError as error:
            self._complaints.add(f"closing the connection of {connection.peer_host}: {error}")
            self._refuse(channel)
            return end
        except Exception:  # a bug of ours must not take the other connections down
            self._complaints.add(
                f"closing the connection of {connection.peer_host} after an unexpected error:\n"
                + traceback.format_exc()
            )
            self._refuse(channel)
            return end
        if out or connection.closing:
            self._to_send.append(channel)
        return position

    def _refuse(self, channel: Channel) -> None:
        """Close once the replies to earlier requests are sent."""
        channel.connection.closing = True
        self._to_send.append(channel)

    def _keep(self, channel: Channel, view: memoryview, position: int, end: int) -> None:
        """Move what is not handled yet into a buffer of the channel's own."""
        have = end - position
        channel.need = self._frame_bytes(view, position, have)
        # A length alone gets little memory: what has arrived says how much more to expect.
        capacity = channel.need
        if not self._buffers.has_spare(capacity):
            capacity = min(capacity, max(LITTLE_BYTES, 16 * have))
        allowed = capacity <= LITTLE_BYTES or self._reserve(channel, capacity)
        channel.buffer = self._buffers.take(capacity if allowed else max(LITTLE_BYTES, have))
        channel.view = memoryview(channel.buffer)
        channel.view[:have] = view[position:end]
        channel.filled = have
        if not allowed:
            self._starve(channel)

    def _frame_bytes(self, view: memoryview, position: int, have: int) -> int:
        """How many bytes there must be before there is something to handle, at least `have`.

        A length that no request has is to be handled at once: that refuses it.
        """
        if have < 4:
            return SMALLEST_REQUEST
        size: int = _SIZE.unpack_from(view, position)[0]
        return max(size + 4, have) if size <= self._max_request_bytes else have

    def _handle_kept(self, channel: Channel) -> None:
        """The channel's own buffer holds a whole frame, or as much as there was room for."""
        buffer, view = channel.buffer, channel.view
        assert buffer is not None
        assert view is not None
        filled = channel.filled
        if filled < channel.need:
            self._grow(channel)
            return
        channel.last_size = channel.need
        position = self._handle(channel, buffer, view, 0, filled)
        if channel.closed:
            return
        self._drop_buffer(channel)
        if position < filled:
            self._keep(channel, view, position, filled)

    def _grow(self, channel: Channel) -> None:
        """The buffer is full and the frame is not: take a larger one, when that is allowed."""
        assert channel.buffer is not None
        assert channel.view is not None
        size = min(channel.need, 2 * len(channel.buffer))
        if not self._reserve(channel, size):
            self._starve(channel)
            return
        larger = self._buffers.take(size)
        view = memoryview(larger)
        view[: channel.filled] = channel.view[: channel.filled]
        self._retire(channel.buffer)
        channel.buffer, channel.view = larger, view

    def _reserve(self, channel: Channel, size: int) -> bool:
        if self._buffers.reserve(size - channel.reserved):
            channel.reserved = size
            return True
        return False

    def _drop_buffer(self, channel: Channel) -> None:
        """The buffer is free after the next settling; its reservation is at once."""
        if channel.buffer is not None:
            self._buffers.unreserve(channel.reserved)
            self._retire(channel.buffer)
            channel.buffer = channel.view = None
            channel.filled = channel.need = channel.reserved = 0

    def _retire(self, buffer: bytearray) -> None:
        self._retired.append(buffer)
        self._retired_bytes += len(buffer)

    # -- flow control --------------------------------------------------------------------

    def _starve(self, channel: Channel) -> None:
        """Too much is being received already: let the others finish first."""
        channel.muted = True
        self._starved.append(channel)
        self._show_interest(channel)
        if len(self._starved) == 1:
            self._node.timers.at(self._node.monotonic_ms + STALL_CHECK_MS, self._close_stalled)
        self._feed_soon = True

    def _feed_starved(self) -> None:
        """Go on with those who wait for memory, in their order, as far as there is some."""
        while self._starved:
            channel = self._starved[0]
            assert channel.buffer is not None
            wanted = len(channel.buffer)
            if channel.filled >= wanted:
                wanted = min(channel.need, 2 * wanted)
            if not self._reserve(channel, wanted):
                if self._buffers.reserved_bytes > sum(other.reserved for other in self._starved):
                    return
                # Only those who wait hold memory: one of them must go on, over the limit.
                self._buffers.exceed(wanted - channel.reserved)
                channel.reserved = wanted
            self._starved.popleft()
            channel.muted = False
            self._show_interest(channel)
            if channel.filled >= len(channel.buffer):
                self._handle_kept(channel)

    def _close_stalled(self) -> None:
        """While some wait for memory nobody may sit on it: who sends nothing more is closed."""
        if not self._starved:
            return
        oldest_ms = self._node.monotonic_ms - STALLED_MS
        for channel in list(self._channels.values()):
            if channel.reserved and not channel.muted and channel.used_ms <= oldest_ms:
                self._complaints.add(
                    f"closing the connection of {channel.connection.peer_host}: its request of "
                    f"{channel.need} bytes does not get on, and others wait for the memory"
                )
                self._close(channel)
        self._feed_starved()
        self._node.timers.at(self._node.monotonic_ms + STALL_CHECK_MS, self._close_stalled)

    def _mute(self, channel: Channel) -> None:
        """Leave further requests in the kernel while one is parked."""
        self._set_interest(channel, _MUTED)

    def _show_interest(self, channel: Channel) -> None:
        if channel.writing:
            self._set_interest(channel, _WRITE | _MUTED)
        elif channel.muted or not channel.connection.takes_requests:
            self._set_interest(channel, _MUTED)
        else:
            self._set_interest(channel, _READ)

    def _set_interest(self, channel: Channel, interest: int) -> None:
        if channel.interest != interest:
            channel.interest = interest
            self._epoll.modify(channel.fd, interest)

    def _send(self, channel: Channel) -> None:
        """Send what is ready, then go on with requests that waited for it."""
        channel.used_ms = self._node.monotonic_ms
        try:
            done = channel.send()
        except OSError:
            self._close(channel)
            return
        if not done:
            channel.writing = True
            self._set_interest(channel, _WRITE | _MUTED)
            return
        connection = channel.connection
        if connection.closing:
            self._close(channel)
            return
        if channel.writing:
            channel.writing = False
        if connection.takes_requests:
            if channel.interest != _READ and not channel.muted:
                self._set_interest(channel, _READ)
            if channel.filled >= channel.need > 0:
                self._handle_kept(channel)

    def close(self) -> None:
        """Close every socket."""
        for channel in list(self._channels.values()):
            self._close(channel)
        for listener in self._listeners.values():
            listener.close()
        self._epoll.close()
        os_close(self._wake_fd)
