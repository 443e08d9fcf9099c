"""The event loop: one thread that waits for events and drives the connection engine.

It accepts connections, tells the engine which of them are readable, writable or gone, runs
what other threads want on the loop, and ends each wake-up with the engine's `settle`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from os import close as os_close
from os import eventfd, eventfd_read, eventfd_write

from ottla.broker.node import Node
from ottla.network.buffers import RequestBuffers
from ottla.network.engine import Engine
from ottla.network.limits import ConnectionLimits
from ottla.network.receiver import LITTLE_BYTES
from ottla.network.stream import HANG_UP, READ
from ottla.server.listener import Listener
from ottla.server.poller import EpollPoller
from ottla.server.socket_stream import SocketStream
from ottla.server.waiting import Waiting


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
        self._poller = EpollPoller()
        self.engine = Engine(node, self._poller, limits, buffers, max_request_bytes)
        self._wake_fd = eventfd(0)
        self._calls: deque[Callable[[], None]] = deque()
        self._running = True
        self._poller.register(self._wake_fd, READ)

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
            self._poller.register(listener.fd, READ)

    def run(self) -> None:
        """Serve until stopped."""
        node, engine, poller = self._node, self.engine, self._poller
        readable, writable, gone = poller.readable, poller.writable, poller.gone
        wait = Waiting(poller.poll).wait
        channels, receiver = engine.channels, engine.receiver
        receive, send, settle = engine.receive, engine.send, engine.settle
        node.advance()
        engine.watch_idle()
        awake = False
        while self._running:
            events = wait(self._timeout_s, awake=awake)
            node.advance()
            for fd, event in events:
                channel = channels.get(fd)
                if channel is None:
                    self._other(fd)
                elif event & writable:
                    send(channel)
                elif event & readable:
                    if receive(channel) and len(events) == 1:
                        engine.stream_large_frames(channel)
                elif event & gone:
                    engine.close(channel)
            # Small requests, and none that is still arriving: the next ones come soon.
            awake = 0 < receiver.arena_used <= LITTLE_BYTES
            settle()
        settle()

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

    def _accept(self, listener: Listener) -> None:
        while True:
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
        os_close(self._wake_fd)
