"""The simulator's helper processes: late, in another order, and failing now and then."""

from __future__ import annotations

from random import Random

from ottla.ports import TaskFailed
from ottla.sim.background import DeferredBackground
from ottla.sim.helpers import DeferredHelpers


def results_of(seed: int, *, failures: float = 0.0, delays: float = 0.0) -> list[object]:
    """Return the results of twenty tasks in the order they came."""
    background = DeferredBackground()
    helpers = DeferredHelpers(background, Random(seed), failures, delays)
    results: list[object] = []
    for number in range(20):
        helpers.submit("binascii:hexlify", bytes([number]), results.append)
    assert results == []
    background.finish()
    assert len(results) == 20
    return results


EXPECTED = [b"%02x" % number for number in range(20)]


def test_results_come_later() -> None:
    assert results_of(1) == EXPECTED


def test_results_in_another_order() -> None:
    results = results_of(1, delays=0.5)
    assert results != EXPECTED
    assert sorted(map(str, results)) == sorted(map(str, EXPECTED))


def test_failures() -> None:
    results = results_of(1, failures=0.5)
    assert any(isinstance(result, TaskFailed) for result in results)
    assert any(isinstance(result, bytes) for result in results)


def test_the_same_seed_does_the_same() -> None:
    first, second = (results_of(5, failures=0.3, delays=0.3) for _ in range(2))
    assert list(map(str, first)) == list(map(str, second))
