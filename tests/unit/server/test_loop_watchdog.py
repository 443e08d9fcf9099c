"""The event loop measures its own wake-ups: a real broker whose loop is held on purpose."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from ottla.server.broker_process import Broker
from ottla.server.runner import BrokerThread
from ottla.testing.loop_watch import read_stalls, watch_loop

SETTINGS = {"listeners": "PLAINTEXT://127.0.0.1:0"}
HELD_S = 0.2


@pytest.fixture
def reports() -> list[str]:
    return []


def hold(call: Callable[[Callable[[], None]], None]) -> None:
    """Let something hold the loop, and wait for it."""
    done = threading.Event()

    def hold_the_loop() -> None:
        threading.Event().wait(HELD_S)

    call(hold_the_loop)
    call(done.set)
    assert done.wait(30)


def test_what_holds_the_loop_is_counted_and_reported(
    reports: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Broker] = []
    monkeypatch.setattr(Broker, "open", _remembering(Broker.open, opened))
    thread = BrokerThread(SETTINGS, memory=True, report=reports.append)
    thread.start()
    try:
        (broker,) = opened
        with (
            pytest.raises(AssertionError, match=r"by: .*background result"),
            watch_loop(thread.metrics, most_ms=1000 * HELD_S * 0.9),
        ):
            hold(broker._call)
        stalls = read_stalls(thread.metrics())
    finally:
        thread.stop()
    assert stalls.longest_ms >= 1000 * HELD_S * 0.9
    assert any("hold_the_loop" in report for report in reports), reports


def _remembering(
    method: Callable[[Broker], None], opened: list[Broker]
) -> Callable[[Broker], None]:
    def remember(broker: Broker) -> None:
        opened.append(broker)
        method(broker)

    return remember


def test_an_idle_broker_has_no_stalls() -> None:
    thread = BrokerThread(SETTINGS, memory=True)
    thread.start()
    try:
        with watch_loop(thread.metrics, most_ms=5000):
            assert "ottla_connections 0" in thread.metrics()
            assert "ottla_unsent_bytes 0" in thread.metrics()
    finally:
        thread.stop()
