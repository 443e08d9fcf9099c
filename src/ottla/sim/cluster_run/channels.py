"""A client with a connection to each broker that it needs, written as one course of action.

`Course` is a generator: it yields calls, gets their answers, and goes on. It may be abandoned at
any point, as a process may be killed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from random import Random
from typing import NamedTuple

from ottla.sim.cluster_run.clients import ClusterClient, ClusterRunOfClients
from ottla.sim.network.exchange import Exchange
from ottla.wire.message import Message


class Call(NamedTuple):
    """A request to a broker."""

    broker: int
    request: Message
    version: int


class Lost(NamedTuple):
    """The answer to a call is lost.

    `is_settled` if the broker's process has ended: what it did not do, it never will.
    """

    is_settled: bool


class Pause(NamedTuple):
    """A time in which the client does nothing."""

    duration_ms: float


Answer = Exchange | Lost
Course = Generator[list[Call] | Pause, list[Answer], None]
Asking = Generator[list[Call] | Pause, list[Answer], Exchange]
"""A part of a course that ends with an answer."""


class Channel(ClusterClient):
    """The connection to one broker. Its calls are sent in their order."""

    THINK_MS = (1.0, 5.0, 20.0)
    _MOST_IN_FLIGHT = 5

    def __init__(
        self, name: str, environment: ClusterRunOfClients, chance: Random, broker: int
    ) -> None:
        super().__init__(name, environment, chance)
        self.broker = broker
        self._is_hanging_up = False
        self._queue: list[tuple[Call, Callable[[Answer], None]]] = []

    def call(self, call: Call, done: Callable[[Answer], None]) -> None:
        """Send a request soon; `done` gets the answer, or that it is lost."""
        self._queue.append((call, done))

    def choose(self) -> None:
        """Stay with the same broker."""

    def think(self) -> None:
        super().think()
        if self._queue and self.connection is None:
            # Nobody is there. Whoever waits should try another broker.
            queue, self._queue = self._queue, []
            for _, done in queue:
                done(Lost(is_settled=True))

    def most_in_flight(self) -> int:
        return self._MOST_IN_FLIGHT

    @property
    def pipelining(self) -> int:
        return self._MOST_IN_FLIGHT

    def act(self) -> None:
        if self._queue:
            call, done = self._queue.pop(0)
            self.ask(call.request, call.version, note=done)

    def received(self, exchange: Exchange) -> None:
        super().received(exchange)
        assert callable(exchange.note)
        exchange.note(exchange)

    def hang_up(self) -> None:
        self._is_hanging_up = True
        super().hang_up()
        self._is_hanging_up = False

    def disconnected(self, lost: list[Exchange]) -> None:
        is_settled = not self._is_hanging_up
        for exchange in lost:
            assert callable(exchange.note)
            exchange.note(Lost(is_settled))

    def forget(self) -> None:
        """Close the connection, as the end of the client's process does."""
        self._queue.clear()
        for exchange in self.in_flight:
            exchange.note = _ignore
        self.hang_up()


def _ignore(answer: Answer) -> None:
    """Drop an answer that nobody waits for."""


class CourseClient:
    """Follows a course, over channels of its own."""

    def __init__(self, name: str, environment: ClusterRunOfClients, chance: Random) -> None:
        self.name = name
        self.environment = environment
        self.chance = chance
        self._channels: dict[int, Channel] = {}
        self._course: Course | None = None
        self._lives = 0

    def course(self) -> Course:
        """Return what a new process does."""
        raise NotImplementedError

    def start(self) -> None:
        """Start a process; the one before it has ended."""
        self._lives += 1
        for channel in self._channels.values():
            channel.forget()
        self._course = self.course()
        self._go_on(self._lives, None)

    def _go_on(self, life: int, answers: list[Answer] | None) -> None:
        if life != self._lives or self._course is None:
            return
        try:
            step = next(self._course) if answers is None else self._course.send(answers)
        except StopIteration:
            self._course = None
            return
        if isinstance(step, Pause):
            self._later(step.duration_ms, lambda: self._go_on(life, []))
        else:
            self._make_calls(life, step)

    def _make_calls(self, life: int, calls: list[Call]) -> None:
        answers: dict[int, Answer] = {}

        def take(number: int, answer: Answer) -> None:
            if life == self._lives:
                answers[number] = answer
                if len(answers) == len(calls):
                    # Not at once: the connection may be in the middle of something.
                    in_order = [answers[each] for each in range(len(calls))]
                    self._later(0.0, lambda: self._go_on(life, in_order))

        for number, call in enumerate(calls):
            self._channel(call.broker).call(
                call,
                lambda answer, number=number: take(number, answer),  # type: ignore[misc]
            )

    def _channel(self, broker: int) -> Channel:
        if broker not in self._channels:
            channel = Channel(f"{self.name}@{broker}", self.environment, self.chance, broker)
            self._channels[broker] = channel
            channel.think()
        return self._channels[broker]

    def _later(self, duration_ms: float, action: Callable[[], None]) -> None:
        self.environment.at(self.environment.monotonic_ms() + duration_ms, action)
