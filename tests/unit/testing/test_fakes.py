"""The fakes for tests: a clock, randomness, background work, and a whole node on them."""

from __future__ import annotations

from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.config.listeners import Endpoint
from ottla.testing.fakes import (
    FakeClock,
    FakeRandom,
    InlineBackground,
    QueuedBackground,
    fake_ports,
)


def test_the_clock_stands_still_until_it_is_moved() -> None:
    clock = FakeClock(1000)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1000, 0.0)
    clock.now_ms += 250
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1250, 250.0)


def test_ids_count_up_and_numbers_are_picked() -> None:
    random = FakeRandom(lambda limit: limit - 1)
    assert [random.uuid()[-1] for _ in range(3)] == [1, 2, 3]
    assert random.below(10) == 9
    assert FakeRandom().below(10) == 0


def test_inline_work_is_done_at_once_and_its_error_is_a_result() -> None:
    results: list[object] = []
    error = OSError("no disk")

    def fail() -> None:
        raise error

    background = InlineBackground()
    background.submit(lambda: 7, results.append)
    background.submit(fail, results.append)
    assert results == [7, error]


def test_queued_work_waits_and_brings_its_own_along() -> None:
    results: list[int | OSError] = []
    background = QueuedBackground()

    def submit_more(result: int | OSError) -> None:
        results.append(result)
        background.submit(lambda: 2, results.append)

    background.submit(lambda: 1, submit_more)
    assert results == []
    background.run()
    assert results == [1, 2]


def test_a_node_starts_on_fake_ports() -> None:
    config = BrokerConfig({"log.dirs": "/data"})
    ports = fake_ports()
    Node(config, [Endpoint("PLAINTEXT", "127.0.0.1", 9092)], ports).start()
    assert ports.files.exists("/data/meta.properties")
