"""Virtual time, seeded chance, and background work that happens when it is told to."""

from __future__ import annotations

import pytest

from ottla.sim.background import DeferredBackground
from ottla.sim.clock import START_WALL_MS, VirtualClock
from ottla.sim.seeded_random import SeededRandom, generator


def test_time_passes_only_when_told() -> None:
    clock = VirtualClock()
    assert (clock.monotonic_ms(), clock.wall_ms()) == (0.0, START_WALL_MS)
    clock.advance_to(12.5)
    assert (clock.monotonic_ms(), clock.wall_ms()) == (12.5, START_WALL_MS + 12)


def test_monotonic_time_never_goes_back_and_wall_time_may() -> None:
    clock = VirtualClock()
    clock.advance_to(100)
    clock.step_wall(-50)
    assert (clock.monotonic_ms(), clock.wall_ms()) == (100, START_WALL_MS + 50)
    with pytest.raises(AssertionError):
        clock.advance_to(99)


def test_parts_of_a_seed_draw_for_themselves() -> None:
    first, again = generator(7, "disk"), generator(7, "disk")
    assert [first.random() for _ in range(5)] == [again.random() for _ in range(5)]
    assert generator(7, "disk").random() != generator(7, "edge").random()
    assert generator(7, "disk").random() != generator(8, "disk").random()


def test_ids_never_begin_with_a_dash() -> None:
    from base64 import urlsafe_b64encode

    random = SeededRandom(generator(1, "ids"))
    assert not any(urlsafe_b64encode(random.uuid()).startswith(b"-") for _ in range(2000))


def test_work_and_its_result_wait_to_be_told() -> None:
    background, seen = DeferredBackground(), list[str | OSError]()

    def work() -> str:
        seen.append("work")
        return "result"

    background.submit(work, seen.append)
    assert seen == []
    assert background.run_one()
    assert seen == ["work"]
    background.deliver()
    assert seen == ["work", "result"]
    assert not background.run_one()


def test_an_error_of_work_is_its_result() -> None:
    background = DeferredBackground()
    results: list[object] = []

    def fail() -> None:
        raise OSError("no")

    background.submit(fail, results.append)
    background.finish()
    assert [str(result) for result in results] == ["no"]


def test_work_begins_in_order_and_never_inside_other_work() -> None:
    background, seen = DeferredBackground(), list[object]()
    background.submit(lambda: seen.append(background.run_one()), lambda result: None)
    background.submit(lambda: seen.append("second"), lambda result: None)
    background.finish()
    assert seen == [False, "second"]


def test_finishing_does_what_results_ask_for_as_well() -> None:
    background, seen = DeferredBackground(), []

    def go_on(result: object) -> None:
        background.submit(lambda: seen.append("more"), lambda result: None)

    background.submit(lambda: None, go_on)
    background.finish()
    assert seen == ["more"]
    assert len(background) == 0
