"""Counts what a request costs: calls in each wake-up, wake-ups, and bytes of the response."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import NamedTuple

from ottla.broker.connection import Connection
from ottla.testing.fakes import FakeClock
from ottla.wire.codec import encoder
from ottla.wire.header import request_header
from ottla.wire.message import Message
from tests.support.broker import Broker

TICK_MS = 0.1
MOST_WAKE_UPS = 20_000


class TickingClock(FakeClock):
    """A clock that moves each time its monotonic time is read: every step takes a tick."""

    def __init__(self) -> None:
        super().__init__()
        self.ticks = 0

    def monotonic_ms(self) -> float:
        self.ticks += 1
        return super().monotonic_ms() + self.ticks * TICK_MS


class Cost(NamedTuple):
    """What one request took."""

    request_bytes: int
    response_bytes: int
    wake_ups: int
    most_calls: int
    """The calls of the wake-up that had most, of Python functions and of others."""


def count_calls(action: Callable[[], object]) -> int:
    """Do something; return how many calls it made. Unlike time, this is always the same."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        if event in {"call", "c_call"}:
            calls += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
    return calls


def cost_of(broker: Broker, request: Message, version: int) -> Cost:
    """Send a request and let the node work until it is answered and nothing is left to do."""
    node, connection = broker.node, Connection("127.0.0.1", "PLAINTEXT")
    frame = bytearray(
        request_header(request.API_KEY, version, 1, "client")
        + encoder(type(request), version)(request)
    )

    def handle() -> None:
        node.handle(connection, frame, memoryview(frame), 0, len(frame))
        node.settle()

    def wake_up() -> None:
        node.advance()
        node.settle()

    most_calls, wake_ups = count_calls(handle), 1
    while not connection.out or len(node.sliced_work):
        assert wake_ups < MOST_WAKE_UPS, "no answer"
        broker.clock.now_ms += 1
        most_calls = max(most_calls, count_calls(wake_up))
        wake_ups += 1
    parts = connection.out
    size = sum(len(part) if isinstance(part, bytes) else part.length for part in parts)
    return Cost(len(frame), size, wake_ups, most_calls)
