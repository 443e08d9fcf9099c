"""A client that the network of a run connects to a broker: its requests under way, its turns.

What a client believes about its requests comes only from replies that reached it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random as Generator
from struct import Struct
from typing import Protocol

from ottla.sim.network.exchange import Exchange, Violation, make_exchange
from ottla.sim.network.stream import SimStream
from ottla.wire.message import Message

_SIZE = Struct(">i")
_DELAYS_MS = (0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 5.0, 30.0)


class Run(Protocol):
    """What a client asks of the run it is part of."""

    def wall_ms(self) -> int: ...

    def monotonic_ms(self) -> float: ...

    def at(self, time_ms: float, action: Callable[[], None]) -> None:
        """Call `action` at a virtual moment."""
        ...

    def connect(self, client: ConnectedClient) -> SimStream | None:
        """Return a connection to the broker; None while it is down."""
        ...

    def new_uid(self) -> int: ...


class ConnectedClient:
    """Base of all clients. It has one connection at a time."""

    THINK_MS: tuple[float, ...] = (1.0, 1.0, 5.0, 20.0, 100.0)
    DISCONNECTS = 0.01

    def __init__(self, name: str, environment: Run, chance: Generator) -> None:
        self.name = name
        self.environment = environment
        self.chance = chance
        self.connection: SimStream | None = None
        self.in_flight: deque[Exchange] = deque()
        self._incoming = bytearray()
        self._correlation_id = 0
        self._sent_until_ms = 0.0
        self._received_until_ms = 0.0

    # -- for subclasses ------------------------------------------------------------------

    def act(self) -> None:
        """Do one thing: usually send a request."""
        raise NotImplementedError

    def received(self, exchange: Exchange) -> None:
        """Take a reply."""

    def disconnected(self, lost: list[Exchange]) -> None:
        """Learn that the connection is gone; whether these requests took effect is not known."""

    # -- turns ---------------------------------------------------------------------------

    def think(self) -> None:
        """Take a turn, and plan the next."""
        if self.connection is None:
            self.connection = self.environment.connect(self)
        elif self.chance.random() < self.DISCONNECTS:
            self.hang_up()
        else:
            for _ in range(self.chance.randint(1, self.pipelining)):
                if self.connection is not None and len(self.in_flight) < self.most_in_flight():
                    self.act()
        delay = self.chance.choice(self.THINK_MS)
        self.environment.at(self.environment.monotonic_ms() + delay, self.think)

    @property
    def pipelining(self) -> int:
        """How many requests a turn may send."""
        return 1

    def most_in_flight(self) -> int:
        """Return how many requests may wait for their replies."""
        return self.pipelining

    def hang_up(self) -> None:
        """Close the connection: politely, or with everything on the way lost."""
        stream = self.connection
        if stream is None:
            return
        stream.end()
        if self.chance.random() < 0.5:
            stream.lose()
        self.lose_connection(stream)

    def lose_connection(self, stream: SimStream) -> None:
        """Forget the connection: as far as the client knows, it is gone."""
        if self.connection is not stream:
            return
        self.connection = None
        lost = list(self.in_flight)
        self.in_flight.clear()
        self._incoming.clear()
        self._sent_until_ms = self._received_until_ms = 0.0
        self.disconnected(lost)

    # -- sending and receiving -----------------------------------------------------------

    def ask(
        self, request: Message, version: int, *, wants_reply: bool = True, note: object = None
    ) -> None:
        """Send a request."""
        self._correlation_id += 1
        self.transmit(
            make_exchange(
                self.name,
                self._correlation_id,
                request,
                version,
                wants_reply=wants_reply,
                note=note,
            )
        )

    def transmit(self, exchange: Exchange) -> None:
        """Put a frame on the wire: frames of a connection arrive in their order."""
        stream = self.connection
        assert stream is not None
        self.in_flight.append(exchange)
        exchange.sent_ms = now_ms = self.environment.monotonic_ms()
        self._sent_until_ms = max(self._sent_until_ms, now_ms + self.chance.choice(_DELAYS_MS))
        self.environment.at(self._sent_until_ms, lambda: _arrive(stream, exchange))

    def deliver(self, stream: SimStream, data: bytes) -> None:
        """Take bytes from the broker: they arrive a little later, in their order."""
        now_ms = self.environment.monotonic_ms()
        self._received_until_ms = max(
            self._received_until_ms, now_ms + self.chance.choice(_DELAYS_MS)
        )
        self.environment.at(self._received_until_ms, lambda: self._receive(stream, data))

    def _receive(self, stream: SimStream, data: bytes) -> None:
        if self.connection is not stream:
            return
        incoming = self._incoming
        incoming += data
        while len(incoming) >= 4:
            end = _SIZE.unpack_from(incoming)[0] + 4
            if len(incoming) < end:
                return
            frame = bytes(incoming[:end])
            del incoming[:end]
            self.received(self._match(frame))

    def _match(self, frame: bytes) -> Exchange:
        while self.in_flight:
            exchange = self.in_flight.popleft()
            if exchange.wants_reply:
                if exchange.reply_frame != frame:
                    raise Violation(f"{exchange!r}: other bytes arrived than were answered")
                return exchange
        raise Violation(f"{self.name}: a reply to nothing: {frame!r}")


def _arrive(stream: SimStream, exchange: Exchange) -> None:
    if not stream.closed and not stream.eof:
        stream.requests.append(exchange)
        stream.arrive(exchange.frame)
