"""A simulated event loop: it drives the engine as the epoll loop does, one wake-up at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random as Generator
from typing import Final

from ottla.broker.node import Node
from ottla.log.damage import LogDirsFailed
from ottla.network.buffers import RequestBuffers
from ottla.network.channel import Channel
from ottla.network.limits import ConnectionLimits
from ottla.network.stream import READ
from ottla.sim.background import DeferredBackground
from ottla.sim.disk.faults import Crash
from ottla.sim.network.recorded_engine import RecordedEngine
from ottla.sim.network.recorder import NodeRecorder
from ottla.sim.network.stream import SimPoller, SimStream

ARENA_BYTES: Final = 256 * 1024
LARGEST_REQUEST: Final = 1024 * 1024
_NO_LIMIT: Final = 1 << 40


class SimLoop:
    """The event loop of one process of a broker."""

    def __init__(
        self,
        node: Node,
        background: DeferredBackground,
        chance: Generator,
        queued_max_bytes: int = _NO_LIMIT,
    ) -> None:
        self._background = background
        self._chance = chance
        self._poller = SimPoller()
        self._numbers = 0
        self.has_events = False
        """Whether a stream may have something to be read, or is gone."""
        self._blocked: set[SimStream] = set()
        self._calls: deque[Callable[[], None]] = deque()
        self.recorder = NodeRecorder(node)
        self.engine = RecordedEngine(
            self.recorder,
            self._poller,
            ConnectionLimits(_NO_LIMIT, _NO_LIMIT, {}, -1),
            RequestBuffers(queued_max_bytes),
            LARGEST_REQUEST,
            arena_bytes=ARENA_BYTES,
        )
        self.on_blocked: Callable[[SimStream], None] = lambda stream: None
        """Called with streams that the broker wants to send more to, later."""
        self.end_process: Callable[[], None] = lambda: None

    # -- connections ---------------------------------------------------------------------

    def connect(
        self, listener: str, deliver: Callable[[bytes], None], on_close: Callable[[], None]
    ) -> SimStream:
        """Open a connection of a client."""
        stream = self.new_stream(deliver, on_close)
        self.engine.accept(stream, f"client-{stream.fileno()}", listener)
        return stream

    def accept_peer(
        self, listener: str, deliver: Callable[[bytes], None], on_close: Callable[[], None]
    ) -> SimStream:
        """Take a connection of another broker, whose requests are not judged."""
        stream = self.new_stream(deliver, on_close)
        stream.is_recorded = False
        self.engine.accept(stream, f"peer-{stream.fileno()}", listener)
        return stream

    def new_stream(
        self, deliver: Callable[[bytes], None], on_close: Callable[[], None]
    ) -> SimStream:
        """Make a stream that the engine can be given."""
        self._numbers += 1
        stream = SimStream(self._numbers, self._chance, deliver, on_close)
        stream.on_event = self._note_event
        self._poller.streams[self._numbers] = stream
        return stream

    def _note_event(self) -> None:
        self.has_events = True

    def close(self, stream: SimStream) -> None:
        """Close a connection from the broker's side, whatever it is doing."""
        if not stream.closed:
            self.engine.close(self._channel(stream))

    def streams(self) -> list[SimStream]:
        """Return the open connections."""
        return list(self._poller.streams.values())

    def readable(self) -> list[SimStream]:
        """Return the connections that wake the loop up."""
        return [
            stream
            for stream in self._poller.streams.values()
            if stream.is_readable and (stream.inbox or not self._is_spared(stream))
        ]

    def _is_spared(self, stream: SimStream) -> bool:
        """Return whether nobody notices yet if a client has hung up.

        Only the reply says what became of a request that waits; without it the model would
        not know what others may see from now on.
        """
        channel = self.engine.channels.get(stream.fileno())
        return channel is not None and self.recorder.owes_reply(channel)

    def call(self, action: Callable[[], None]) -> None:
        """Run `action` in the next wake-up."""
        self._calls.append(action)

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)

    # -- the wake-up ---------------------------------------------------------------------

    def wake(self, writable: list[SimStream]) -> None:
        """Take one turn of the loop; `writable` streams take bytes again.

        Crash if the broker ends because its log directories have failed.
        """
        try:
            self._wake(writable)
        except LogDirsFailed:
            self.end_process()
            raise Crash from None

    def _wake(self, writable: list[SimStream]) -> None:
        engine = self.engine
        self.recorder.advance()
        self._background.deliver()
        while self._calls:
            self._calls.popleft()()
        self.recorder.note_early()
        for stream in self.streams():
            is_gone = (stream.eof or stream.error is not None) and not stream.interest & READ
            if is_gone and stream.fileno() in engine.channels and not self._is_spared(stream):
                engine.close(self._channel(stream))
        for stream in writable:
            self._blocked.discard(stream)
            # It may be a stream of the process before this one.
            is_ours = self._poller.streams.get(stream.fileno()) is stream
            if is_ours and not stream.closed and stream.is_blocked:
                engine.send(self._channel(stream))
        ready = self.readable()
        self._chance.shuffle(ready)
        for stream in ready:
            if not stream.closed:
                channel = self._channel(stream)
                if engine.receive(channel) and len(ready) == 1:
                    engine.stream_large_frames(channel)
        engine.resume()
        engine.settle()
        self._tell_blocked()
        self.has_events = any(map(self._has_event, self.streams()))

    def _has_event(self, stream: SimStream) -> bool:
        """Return whether a stream has bytes to be read, or an end that is noticed now."""
        if stream.is_readable and stream.inbox:
            return True
        return (stream.eof or stream.error is not None) and not self._is_spared(stream)

    def _tell_blocked(self) -> None:
        """Tell which streams must be `writable` at some later time."""
        for stream in self.streams():
            if stream.is_blocked and stream not in self._blocked:
                self._blocked.add(stream)
                self.on_blocked(stream)

    def _channel(self, stream: SimStream) -> Channel:
        return self.engine.channels[stream.fileno()]
