"""The rate of cleans."""

from __future__ import annotations

import pytest

from ottla.config.topic import LogConfig
from ottla.log.cleaner.clean_run import CleanRun, CleanSettings, CleanWorld
from ottla.log.cleaner.cleanable import cleanable
from ottla.log.cleaner.cleaning_task import run
from ottla.log.cleaner.io_throttle import IoThrottle
from ottla.model.steps import run_to_end
from ottla.testing.fakes import FakeClock
from tests.support.cleaner import fill, keyed, seen
from tests.support.log import NOW, new_log


def test_the_rate_holds_on_average() -> None:
    throttle = IoThrottle(1000)
    throttle.charge(500, now_ms=0)
    assert throttle.delay_ms(now_ms=0) == 500
    throttle.charge(500, now_ms=500)
    assert throttle.delay_ms(now_ms=500) == 500
    throttle.charge(500, now_ms=2000)
    assert throttle.delay_ms(now_ms=2000) == 500, "time in which nothing was done is lost"
    assert throttle.delay_ms(now_ms=9000) == 0


@pytest.mark.parametrize("rate", [0.0, 1e-300])
def test_a_rate_of_nothing_is_very_slow(rate: float) -> None:
    throttle = IoThrottle(rate)
    throttle.charge(500, now_ms=0)
    assert throttle.delay_ms(now_ms=0) == 500_000
    throttle.change(1000)
    assert throttle.delay_ms(now_ms=1) == 0, "whoever waits goes on with the new rate"


@pytest.mark.parametrize("rate", [float("nan"), -1.0, float("-inf"), float("inf")])
def test_what_is_no_rate_is_no_limit(rate: float) -> None:
    throttle = IoThrottle(rate)
    throttle.charge(500, now_ms=0)
    assert throttle.delay_ms(now_ms=0) == 0


def test_a_clean_takes_as_long_as_its_bytes() -> None:
    log = new_log(LogConfig(cleanup_policy=frozenset({"compact"})))
    for number in range(20):
        fill(log, [keyed(("a", "x" * 500)), keyed((f"k{number}", "y" * 500))])
    clock = log.resources.clock
    assert isinstance(clock, FakeClock)

    def pass_time(delay_ms: float, action: object) -> None:
        clock.now_ms += round(delay_ms)
        assert callable(action)
        action()

    world = CleanWorld(
        lambda message, done: done(run(message)),
        pass_time,
        lambda: True,
        lambda: False,
        IoThrottle(1000),
    )
    size = log.size
    work = CleanRun("slow", cleanable(log, NOW), CleanSettings(1 << 20, 0.9, 4096), world)
    run_to_end(work.steps())
    took_s = (clock.now_ms - NOW) / 1000
    moved = 2 * size + log.size  # read twice, written once
    assert 0.9 * moved / 1000 < took_s < 1.1 * moved / 1000 + 1
    assert len(seen(log)) == 21
