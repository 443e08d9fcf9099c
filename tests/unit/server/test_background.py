"""The thread for blocking calls: what it returns or raises comes back on the loop."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from errno import EIO

import pytest

from ottla.server.background import BackgroundThread

TIMEOUT_S = 10.0


class Loop:
    """Stands for the loop: is woken, and has results delivered."""

    def __init__(self) -> None:
        self._woken = threading.Semaphore(0)
        self.background = BackgroundThread(self._woken.release)
        self.results: list[object] = []

    def await_one(self) -> None:
        assert self._woken.acquire(timeout=TIMEOUT_S)
        self.background.deliver()


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.background.stop()


def test_work_is_done_elsewhere_and_its_result_delivered_here(loop: Loop) -> None:
    loop.background.submit(threading.get_ident, loop.results.append)
    loop.await_one()

    assert loop.results != [threading.get_ident()]
    assert len(loop.results) == 1


def test_an_error_of_the_system_is_a_result_and_the_thread_goes_on(loop: Loop) -> None:
    def fail() -> None:
        raise OSError(EIO, "lost")

    loop.background.submit(fail, loop.results.append)
    loop.await_one()
    assert isinstance(loop.results.pop(), OSError)

    loop.background.submit(lambda: 7, loop.results.append)
    loop.await_one()
    assert loop.results == [7]


def test_it_interrupts_nobody_and_leaves_the_loop_as_it_is(loop: Loop) -> None:
    before = os.sched_getscheduler(0)
    loop.background.submit(lambda: os.sched_getscheduler(0), loop.results.append)
    loop.await_one()

    assert loop.results == [os.SCHED_BATCH]
    assert os.sched_getscheduler(0) == before


def test_what_was_submitted_is_finished_before_it_stops(loop: Loop) -> None:
    for number in range(100):
        loop.background.submit(lambda number=number: number, loop.results.append)  # type: ignore[misc]
    loop.background.stop()

    assert loop.results == list(range(100))


def test_a_bug_in_the_thread_is_raised_on_the_loop(loop: Loop) -> None:
    def broken() -> None:
        raise AssertionError("a broken invariant")

    loop.background.submit(broken, loop.results.append)
    with pytest.raises(AssertionError, match="a broken invariant"):
        loop.await_one()
    loop.background.submit(lambda: "still there", loop.results.append)
    loop.await_one()
    assert loop.results == ["still there"]
