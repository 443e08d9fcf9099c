"""A connection to another broker: responses arrive in the order of the requests.

States: idle -> opening (with the first request) -> open -> idle (after a loss). After losses
without any response in between, `opening` begins with a delay that doubles each time. `close`
ends it in any state.

Every request has a deadline. If no response comes in time, the connection is closed, as Kafka's
clients do: responses come in order, so all later ones would be late as well. This also detects a
peer that has disappeared. One timer serves all requests of a connection: it is set for the next
deadline, and stays set if that request is answered before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla.broker.connection import Connection
from ottla.network.channel import Channel
from ottla.network.stream import READ, WRITE, Stream
from ottla.ports import Response
from ottla.replication.timers import Timer
from ottla.wire.header import decode_response_header, request_header
from ottla.wire.primitives import DecodeError

if TYPE_CHECKING:
    from ottla.network.engine import Engine
    from ottla.network.peers import Peers

MOST_IN_FLIGHT: Final = 100
FIRST_BACKOFF_MS: Final = 50
_ANY_NUMBER: Final = 1 << 30  # responses are read whatever waits to be sent
_SMALLEST_RESPONSE: Final = 4  # a correlation id
_CORRELATION_IDS: Final = 1 << 31
_pack_size: Final = Struct(">i").pack
_new: Final = tuple.__new__  # what a NamedTuple's constructor does, in half the time


class State(Enum):
    IDLE = "idle"
    OPENING = "opening"
    OPEN = "open"
    CLOSED = "closed"


class InFlight:
    """A request that has no response yet."""

    __slots__ = ("api_key", "api_version", "correlation_id", "deadline_ms", "done", "frame")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        frame: bytes,
        deadline_ms: float,
        done: Callable[[Response | OSError], None],
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.frame = frame
        self.deadline_ms = deadline_ms
        self.done = done


class EnginePeer:
    """The Peer port on an engine's outgoing channel."""

    def __init__(
        self, peers: Peers, host: str, port: int, client_id: str, longest_backoff_ms: int
    ) -> None:
        self._peers = peers
        self._host = host
        self._port = port
        self._client_id = client_id
        self._longest_backoff_ms = longest_backoff_ms
        self.on_lost: Callable[[], None] | None = None
        self._in_flight: deque[InFlight] = deque()
        self._correlation_id = 0
        self._state = State.IDLE
        self._channel: Channel | None = None
        self._failures = 0
        """Losses of the connection since the last response."""
        self._open_after_ms = 0.0
        self._timer: Timer | None = None
        """Rings at or before the next deadline of a request in flight."""

    def __repr__(self) -> str:
        return f"{self._host}:{self._port}"

    @property
    def in_flight(self) -> int:
        """How many requests have no response yet."""
        return len(self._in_flight)

    # -- requests ------------------------------------------------------------------------

    def send(
        self,
        api_key: int,
        api_version: int,
        body: bytes,
        timeout_ms: float,
        done: Callable[[Response | OSError], None],
    ) -> None:
        assert self._state is not State.CLOSED, f"{self} was closed"
        if len(self._in_flight) >= MOST_IN_FLIGHT:
            raise BlockingIOError(f"{MOST_IN_FLIGHT} requests to {self} have no response yet")
        self._correlation_id = (self._correlation_id + 1) % _CORRELATION_IDS
        header = request_header(api_key, api_version, self._correlation_id, self._client_id)
        frame = _pack_size(len(header) + len(body)) + header + body
        engine = self._peers.engine
        deadline_ms = engine.node.monotonic_ms + timeout_ms
        request = InFlight(api_key, api_version, self._correlation_id, frame, deadline_ms, done)
        self._in_flight.append(request)
        if self._timer is None or self._timer.deadline_ms > deadline_ms:
            self._set_timer(deadline_ms)
        if self._channel is not None:
            self._transmit(engine, self._channel, request)
        elif self._state is State.IDLE:
            self._open_soon()

    def _transmit(self, engine: Engine, channel: Channel, request: InFlight) -> None:
        channel.connection.out.append(request.frame)
        request.frame = b""
        if not channel.writing:
            engine.to_send.append(channel)

    def _receive(
        self, connection: Connection, buffer: bytearray, view: memoryview, start: int, end: int
    ) -> None:
        """Take a response frame, which must answer the oldest request."""
        if self._state is State.CLOSED:
            return
        if not self._in_flight:
            raise DecodeError("a response that nothing was asked for")
        request = self._in_flight[0]
        correlation_id, body = decode_response_header(
            request.api_key, request.api_version, buffer, start, end
        )
        if correlation_id != request.correlation_id:
            raise DecodeError(f"response {correlation_id} came instead of {request.correlation_id}")
        self._in_flight.popleft()
        self._failures = 0
        request.done(_new(Response, (buffer, view, body, end)))

    # -- time ----------------------------------------------------------------------------

    def _set_timer(self, deadline_ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._peers.engine.node.timers.at(deadline_ms, self._check_time)

    def _check_time(self) -> None:
        """Give up the requests whose time is over; wait for the next deadline."""
        self._timer = None
        now_ms = self._peers.engine.node.monotonic_ms
        for request in [each for each in self._in_flight if each.deadline_ms <= now_ms]:
            if request in self._in_flight:  # else it has failed with the connection
                self._time_out(request)
        self._await_next_deadline()

    def _await_next_deadline(self) -> None:
        if self._in_flight and self._timer is None:
            self._set_timer(min(each.deadline_ms for each in self._in_flight))

    def _time_out(self, request: InFlight) -> None:
        self._in_flight.remove(request)
        if self._channel is not None:
            self._lose_channel()
        request.done(TimeoutError(f"no response from {self} in time"))

    # -- the connection ------------------------------------------------------------------

    def _open_soon(self) -> None:
        self._state = State.OPENING
        node = self._peers.engine.node
        if node.monotonic_ms >= self._open_after_ms:
            self._open()
        else:
            node.timers.at(self._open_after_ms, self._open)

    def _open(self) -> None:
        if self._state is State.OPENING:
            self._peers.connector.connect(self._host, self._port, self._opened)

    def _opened(self, result: Stream | OSError) -> None:
        if isinstance(result, OSError):
            if self._state is State.OPENING:
                self._lost(result)
        elif self._state is State.OPENING:
            self._begin(result)
        else:
            result.close()

    def _begin(self, stream: Stream) -> None:
        """Let the engine drive the stream; it sends when the stream is connected."""
        channel = Channel(
            stream,
            Connection(str(self), ""),
            self._receive,
            self._channel_closed,
            self._peers.max_response_bytes,
        )
        channel.is_outgoing = True
        channel.most_replies = _ANY_NUMBER
        channel.smallest_frame = _SMALLEST_RESPONSE
        channel.writing = True
        channel.interest = READ | WRITE
        self._state = State.OPEN
        self._channel = channel
        for request in self._in_flight:
            self._transmit(self._peers.engine, channel, request)
        self._peers.engine.add(channel)

    def _channel_closed(self, connection: Connection) -> None:
        channel = self._channel
        if channel is not None and channel.connection is connection:
            lost = ConnectionResetError(f"the connection to {self} was lost")
            self._lost(channel.error or lost)

    def _lose_channel(self) -> None:
        assert self._channel is not None
        self._peers.engine.close(self._channel)  # calls `_channel_closed`

    def _lost(self, error: OSError) -> None:
        """Let every request in flight fail; the next one opens the connection again."""
        was_open = self._state is State.OPEN
        self._state = State.IDLE
        self._channel = None
        self._failures += 1
        self._open_after_ms = self._peers.engine.node.monotonic_ms + self._backoff_ms()
        self._fail_all(error)
        if was_open and self.on_lost is not None:
            self.on_lost()

    def _backoff_ms(self) -> float:
        """Return the delay before the next attempt: doubled each time, with some jitter."""
        if self._failures == 1:
            return 0
        doubled = FIRST_BACKOFF_MS << min(self._failures - 2, 10)
        limit = min(doubled, self._longest_backoff_ms)
        return limit * (80 + self._peers.random.below(41)) / 100

    def _fail_all(self, error: OSError) -> None:
        failed = list(self._in_flight)
        self._in_flight.clear()
        for request in failed:
            request.done(error)

    def close(self) -> None:
        """Close the connection. Requests in flight fail; nothing more may be sent."""
        if self._state is State.CLOSED:
            return
        self._state = State.CLOSED
        channel, self._channel = self._channel, None
        if channel is not None:
            # Not at once: this may be called from within a response of this very connection.
            channel.connection.out.clear()
            channel.unsent = None
            channel.connection.closing = True
            self._peers.engine.to_send.append(channel)
        self._fail_all(ConnectionAbortedError(f"the connection to {self} was closed"))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
