"""The event loop: one thread that waits for events and drives the connection engine.

It accepts connections, tells the engine which of them are readable, writable or gone, and calls
the engine's `settle`, which sends the replies. Then it runs what other threads want on the loop.

If several connections are ready and the wake-up has taken some milliseconds, it ends, and the next
one begins with the connections that it has not come to: timers are not late, and replies
are sent meanwhile. What was appended counts with the time that its write will take.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from ottla.broker.metrics.loop_stalls import NOTED_MS, RESULT, STALL_MS, names_of
from ottla.broker.node import Node
from ottla.network.buffers import LITTLE_BYTES, RequestBuffers
from ottla.network.channel import Channel
from ottla.network.engine import Engine
from ottla.network.limits import ConnectionLimits
from ottla.network.slow_readers import MOST_UNSENT_RANGES
from ottla.network.stream import HANG_UP, READ
from ottla.server.event_wait import Events, EventWait
from ottla.server.listener import Listener
from ottla.server.poller import make_poller
from ottla.server.socket_stream import SocketStream
from ottla.server.waker import Waker

FEW_EVENTS: Final = 8
"""This many connections with small requests are handled without a look at the clock."""

MOST_MS: Final = 3.0
"""How long a wake-up may take before it leaves the rest to the next one."""

WRITE_MS: Final = 0.007
"""About what the write of a partition takes when the wake-up ends."""

NEXT_MS_PER_BYTE: Final = 1e-4
"""What a byte of the next request may take, if it has a hundred bytes for each of many partitions.

So a request that follows a settled one is not begun if it may have hundreds of partitions.
"""

LARGE_MS_PER_BYTE: Final = 1e-6
"""About what the write of a byte of a large frame takes."""

MUCH_BYTES: Final = 4 * 1024
"""Requests with more bytes together may have taken long."""

MOST_ACCEPTED: Final = 64
"""How many connections are accepted in a wake-up."""


class Reactor:
    """Drives a node with real sockets until it is told to stop."""

    def __init__(
        self,
        node: Node,
        listeners: Iterable[Listener],
        limits: ConnectionLimits,
        buffers: RequestBuffers,
        max_request_bytes: int,
        *,
        most_unsent_ranges: int = MOST_UNSENT_RANGES,
    ) -> None:
        self._node = node
        self._listeners = {listener.fd: listener for listener in listeners}
        self._poller = make_poller()
        self.engine = Engine(
            node,
            self._poller,
            limits,
            buffers,
            max_request_bytes,
            most_unsent_ranges=most_unsent_ranges,
        )
        self.engine.is_late = self._is_late
        self._waker = Waker()
        self._calls: deque[Callable[[], object]] = deque()
        self._called = False
        """True if other threads have called since the last wake-up."""
        self._running = True
        self._is_owed = False
        """True if requests that are received already come before new ones, in the next wake-up."""
        self._left: list[int] = []
        """The descriptors that the last wake-up has not come to, in their order."""
        self._writable: list[Channel] = []
        """Channels that take more of their replies. They are served after everybody else."""
        self._found: Events = []
        """Events that were found while these sent."""
        self._poller.register(self._waker.fd, READ)

    # -- from other threads and signal handlers ------------------------------------------

    def call(self, action: Callable[[], object]) -> None:
        """Run `action` on the loop soon; safe from any thread.

        If it returns a list of functions, these are what it ran, for reports about stalls.
        """
        self._calls.append(action)
        self._waker.wake()

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
            self._poller.register(listener.fd, READ)

    def run(self) -> None:
        """Serve until stopped."""
        node, engine, poller = self._node, self.engine, self._poller
        poll = poller.poll
        readable, writable, gone = poller.readable, poller.writable, poller.gone
        now_ms = node.clock.monotonic_ms
        waiting = EventWait(poll, now_ms, self._timeout_s)
        wait, sleep = waiting.wait, waiting.sleep
        channels, receiver = engine.channels, engine.receiver
        receive, settle = engine.receive, engine.settle
        to_resume, to_send = engine.to_resume, engine.to_send
        node.advance()
        engine.watch_idle()
        awake = False
        while self._running:
            ended_ms = now_ms()
            woke_ms = node.monotonic_ms
            if ended_ms - woke_ms > STALL_MS:
                node.loop_stalls.add(ended_ms - woke_ms, woke_ms)
            if self._left or self._found:
                events = self._in_turn(self._found or poll(0))
            elif to_resume or to_send:  # the engine has work
                events = poll(0)
            elif awake:
                events = wait(ended_ms, woke_ms)
            else:
                events = sleep(ended_ms)
            node.advance()
            has_resumed = self._is_owed
            if has_resumed:
                events = self._resume_first(events)
            if len(events) > FEW_EVENTS:
                events = self._handle_many(events)
            rest = iter(events)
            for fd, event in rest:
                channel = channels.get(fd)
                if channel is None:
                    self._other(fd)
                elif event & writable:
                    self._writable.append(channel)
                elif event & readable:
                    if receive(channel) and len(events) == 1:
                        engine.stream_large_frames(channel)
                    elif receiver.arena_used + receiver.kept_bytes > MUCH_BYTES and self._is_late():
                        self._left = [fd for fd, _ in rest]
                elif event & gone:
                    engine.close(channel)
            if to_resume and not has_resumed:
                self._resume_if_early()
            # Small requests, and none that is still arriving: the next ones come soon.
            awake = 0 < receiver.arena_used <= LITTLE_BYTES
            settle()
            if self._called:  # clients do not wait for it
                self._run_calls()
                settle()
            if self._writable:
                self._send_more()
        settle()

    def _handle_many(self, events: Events) -> Events:
        """Handle events for a while, and remember whose turn is next; return no events."""
        engine, poller = self.engine, self._poller
        channels, receiver, receive = engine.channels, engine.receiver, engine.receive
        readable, writable = poller.readable, poller.writable
        is_late = self._is_late
        others = [fd for fd, _ in events if fd not in channels]
        for fd in others:
            self._other(fd)
        few, much = FEW_EVENTS, receiver.arena_used + receiver.kept_bytes + MUCH_BYTES
        rest = iter(events)
        for fd, event in rest:
            channel = channels.get(fd)
            if channel is None:
                continue
            if event == readable:  # and nothing else: nearly always
                receive(channel)
                few -= 1
                if few and receiver.arena_used + receiver.kept_bytes <= much:
                    continue
            elif event & writable:
                self._writable.append(channel)
                continue
            elif event & readable:
                receive(channel)
            else:
                engine.close(channel)
            few, much = FEW_EVENTS, receiver.arena_used + receiver.kept_bytes + MUCH_BYTES
            if is_late():
                self._left = [fd for fd, _ in rest]
                break
        return []

    def _resume_if_early(self) -> None:
        """Go on with requests that are received already; if it is late, in the next wake-up."""
        receiver = self.engine.receiver
        if (receiver.arena_used or receiver.kept_bytes) and self._is_late():
            self._is_owed = True
        else:
            self.engine.resume()

    def _resume_first(self, events: Events) -> Events:
        """Go on with requests that are received already; return the events there is time for."""
        self._is_owed = False
        self.engine.resume()
        if not events or not self._is_late():
            return events
        self._left = [fd for fd, _ in events]
        return []

    def _is_late(self, next_bytes: int = 0) -> bool:
        """Return True if this wake-up should handle no more of the requests that are here.

        `next_bytes` is the size of the next one, if it is known.
        """
        node = self._node
        taken_ms = node.clock.monotonic_ms() - node.monotonic_ms
        receiver = self.engine.receiver
        large_ms = LARGE_MS_PER_BYTE * (receiver.kept_bytes - receiver.piece_bytes)
        next_ms = NEXT_MS_PER_BYTE * next_bytes
        return taken_ms + WRITE_MS * len(node.appended) + large_ms + next_ms > MOST_MS

    def _in_turn(self, events: Events) -> Events:
        """Return events in the order in which they are handled: first those that were left."""
        found = dict(events)
        left = [(fd, found.pop(fd)) for fd in self._left if fd in found]
        self._left = []
        self._found = []
        return [*left, *found.items()]

    def _send_more(self) -> None:
        """Let writable channels send, until others want something. Small requests do not wait long.

        The poller tells again which channels are writable.
        """
        engine, writable = self.engine, self._poller.writable
        for channel in self._writable:
            if not channel.closed:
                engine.send(channel)
            self._found = self._poller.poll(0)
            if any(event != writable for _, event in self._found):
                break
        self._writable.clear()
        engine.settle()

    def _timeout_s(self, now_ms: float) -> float:
        """Return how long the loop may sleep from now on, for ever if negative."""
        deadline_ms = self._node.timers.next_deadline_ms()
        if deadline_ms is None:
            return -1
        return max(0.0, deadline_ms - now_ms) / 1000

    def _other(self, fd: int) -> None:
        if fd == self._waker.fd:
            self._waker.clear()
            self._called = True
        elif fd in self._listeners:
            self._accept(self._listeners[fd])

    def _run_calls(self) -> None:
        """Run what other threads want on the loop."""
        self._called = False
        node = self._node
        now_ms = node.clock.monotonic_ms
        began_ms = now_ms()
        while self._calls:
            action = self._calls.popleft()
            ran = action()
            ended_ms = now_ms()
            took_ms = ended_ms - began_ms
            if took_ms > NOTED_MS:
                names = names_of(ran if isinstance(ran, list) else [action])
                node.loop_stalls.note(RESULT, took_ms, node.monotonic_ms, names)
            began_ms = ended_ms

    def _accept(self, listener: Listener) -> None:
        for _ in range(MOST_ACCEPTED):
            try:
                accepted = listener.accept()
            except OSError as error:  # out of file descriptors: try again when there are some
                self.engine.warnings.add(f"cannot accept a connection: {error.strerror}")
                self._pause(listener)
                return
            if accepted is None:
                return
            sock, host = accepted
            self.engine.accept(SocketStream(sock), host, listener.name)

    def _pause(self, listener: Listener) -> None:
        self._poller.modify(listener.fd, HANG_UP)
        self._node.timers.at(
            self._node.monotonic_ms + 1000, lambda: self._poller.modify(listener.fd, READ)
        )

    def close(self) -> None:
        """Close every socket."""
        self.engine.close_all()
        for listener in self._listeners.values():
            listener.close()
        self._poller.close()
        self._waker.close()
