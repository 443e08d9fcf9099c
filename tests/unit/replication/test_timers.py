"""Timers fire once, in order, and forget the cancelled."""

from __future__ import annotations

from functools import partial
from random import Random

from ottla.replication.timers import MOST_CALLS, Timers


def test_timers_fire_in_the_order_of_their_deadlines() -> None:
    timers, fired = Timers(), list[int]()
    for deadline in (30, 10, 20):
        timers.at(deadline, partial(fired.append, deadline))
    timers.run(20)
    assert fired == [10, 20]
    assert timers.next_deadline_ms() == 30
    timers.run(100)
    timers.run(200)
    assert fired == [10, 20, 30]
    assert timers.next_deadline_ms() is None


def test_a_cancelled_timer_neither_fires_nor_wakes() -> None:
    timers, fired = Timers(), list[int]()
    timers.at(10, lambda: fired.append(10)).cancel()
    timers.at(20, lambda: fired.append(20))
    assert timers.next_deadline_ms() == 20
    timers.run(20)
    assert fired == [20]


def test_an_action_may_set_the_next_timer() -> None:
    timers, fired = Timers(), list[int]()

    def again() -> None:
        fired.append(len(fired))
        if len(fired) < 3:
            timers.at(0, again)

    timers.at(0, again)
    timers.run(0)
    assert fired == [0, 1, 2]


def test_cancelled_timers_do_not_pile_up_until_their_deadline() -> None:
    timers = Timers()
    for _ in range(20_000):
        timers.at(1_000_000, lambda: None).cancel()
    assert len(timers) < 3000


def test_timers_of_any_time_fire_in_order() -> None:
    """They are set in disorder, some while others fire, and many are cancelled."""
    timers, fired = Timers(), list[float]()
    random = Random(7)

    def fire(deadline: float, more: int) -> None:
        fired.append(deadline)
        if more:
            later = deadline + random.choice((0, 0.25, 5, 63.75, 64, 500, 30_000))
            expected.append(later)
            timers.at(later, partial(fire, later, more - 1))

    expected = [float(random.randrange(0, 40_000)) / 4 for _ in range(500)]
    for deadline in list(expected):
        timers.at(deadline, partial(fire, deadline, 3))
        timers.at(deadline + random.randrange(1000), lambda: fired.append(-1)).cancel()
    while (now_ms := timers.next_deadline_ms()) is not None:
        assert timers.due_ms <= now_ms
        assert timers.due_ms > min(expected) - 1
        timers.run(now_ms)
    assert fired == sorted(expected)


def test_a_wake_up_calls_only_some_of_those_that_are_due() -> None:
    timers, fired = Timers(), list[int]()
    for number in range(MOST_CALLS + 5):
        timers.at(10, partial(fired.append, number))
    timers.run(10)
    assert fired == list(range(MOST_CALLS))
    assert timers.due_ms <= 10
    timers.run(10)
    assert fired == list(range(MOST_CALLS + 5))
    assert timers.due_ms > 10
