"""Stalls of the event loop: counted, blamed on what held it, reported now and then."""

from __future__ import annotations

from functools import partial

import pytest

from ottla.broker.metrics.loop_stalls import OTHER, REPORT_MS, TIMER, LoopStalls, name_of, names_of
from ottla.broker.metrics.prometheus_text import render
from ottla.testing.loop_watch import Stalls, read_stalls, watch_loop
from ottla.wire.messages.metadata import MetadataRequest
from tests.support.broker import Broker


class Log(list[str]):
    """Messages for the operator."""


def test_a_stall_is_blamed_on_what_took_most_of_it() -> None:
    stalls = LoopStalls(Log().append)
    stalls.note("Metadata", 20.0, 1000.0)
    stalls.note("DescribeConfigs", 90.0, 1000.0)
    stalls.note("Heartbeat", 15.0, 1000.0)
    stalls.add(120.0, 1000.0)
    stalls.add(100.0, 2000.0)  # nothing was noted in this wake-up
    stalls.note("Metadata", 20.0, 3000.0)
    stalls.add(100.0, 3000.0)  # a small part of it
    assert stalls.counts == {"DescribeConfigs": 1, OTHER: 2}
    assert stalls.total_ms == {"DescribeConfigs": 120.0, OTHER: 200.0}
    assert (stalls.longest_ms, stalls.count) == (120.0, 3)


def test_reports_are_rate_limited() -> None:
    log = Log()
    stalls = LoopStalls(log.append)
    stalls.note(TIMER, 70.0, 0.0, "Retention.check")
    stalls.add(80.0, 0.0)
    for number in range(1, 20):
        stalls.add(60.0, number * 100.0)
    assert log == ["the event loop was held for 80 ms by: timer (Retention.check)"]
    stalls.add(70.0, REPORT_MS)
    assert log[1:] == [
        "the event loop was held for 70 ms by: other, and 19 times since the last message"
    ]


def test_a_slow_handler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    client = broker.connect()
    client.ask(MetadataRequest(topics=[]))
    api = next(iter(broker.node.pipeline.apis.values()))
    quick = api.handle

    def slow(*args: object) -> object:
        broker.clock.now_ms += 200
        return quick(*args)

    monkeypatch.setattr(api, "handle", slow)
    broker.node.advance()
    began_ms = broker.node.monotonic_ms
    client.ask(MetadataRequest(topics=[]))
    broker.node.loop_stalls.add(broker.clock.monotonic_ms() - began_ms, began_ms)
    assert broker.node.loop_stalls.counts == {"Metadata": 1}
    text = render(broker.node).decode()
    assert 'ottla_loop_stalls_total{held_by="Metadata"} 1\n' in text
    assert 'ottla_loop_stall_seconds_total{held_by="Metadata"} 0.2\n' in text
    assert "ottla_loop_longest_stall_seconds 0.2\n" in text


def test_a_slow_timer_is_named() -> None:
    broker = Broker()

    def check_retention() -> None:
        broker.clock.now_ms += 300

    broker.node.timers.at(broker.node.monotonic_ms + 10, check_retention)
    broker.pass_time(20)
    broker.node.loop_stalls.add(300.0, broker.node.monotonic_ms)
    assert broker.node.loop_stalls.counts == {TIMER: 1}
    assert "check_retention" in broker.reports[-1]


def test_names_of_functions() -> None:
    assert name_of(partial(partial(test_names_of_functions))) == "test_names_of_functions"
    assert name_of(lambda: None) == "test_names_of_functions"
    assert names_of([print, len, print, max, min]) == "print, len, max, ..."


class Metrics:
    """What a broker shows, one text after the other."""

    def __init__(self, *stalls: tuple[float, int, float]) -> None:
        self._stalls = list(stalls)

    def __call__(self) -> str:
        longest_s, count, total_s = self._stalls.pop(0)
        return (
            f'ottla_loop_stalls_total{{held_by="Fetch"}} {count}\n'
            f'ottla_loop_stall_seconds_total{{held_by="Fetch"}} {total_s}\n'
            f"ottla_loop_longest_stall_seconds {longest_s}\n"
        )


def test_the_metrics_are_read() -> None:
    assert read_stalls(Metrics((0.3, 4, 0.5))()) == Stalls(300.0, {"Fetch": 4}, {"Fetch": 500.0})
    assert read_stalls("") == Stalls(0.0, {}, {})


@pytest.mark.parametrize(
    "after",
    [
        (0.6, 2, 0.8),  # a new longest one
        (0.3, 9, 1.4),  # no new longest one, and this one is longer than allowed
    ],
)
def test_a_block_with_a_long_stall_fails(after: tuple[float, int, float]) -> None:
    most_ms = 250.0
    with (
        pytest.raises(AssertionError, match="by: Fetch; at most 250 ms are allowed"),
        watch_loop(Metrics((0.3, 1, 0.3), after), most_ms=most_ms),
    ):
        pass


@pytest.mark.parametrize("after", [(0.3, 1, 0.3), (0.3, 2, 0.4), (0.2, 1, 0.2)])
def test_a_block_without_a_long_stall_passes(after: tuple[float, int, float]) -> None:
    before = (0.3, 1, 0.3) if after[0] == 0.3 else (0.0, 0, 0.0)
    with watch_loop(Metrics(before, after), most_ms=250.0):
        pass
