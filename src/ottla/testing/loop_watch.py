"""Fails a test during which something held a broker's event loop for too long.

A broker counts stalls of over 50 ms (`ottla.broker.metrics.loop_stalls`) and shows them in its
metrics. On a busy machine a broker may also be held because others have the processor, so bounds
must be generous: they find seconds, not milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

_COUNT: Final = "ottla_loop_stalls_total{"
_TOTAL: Final = "ottla_loop_stall_seconds_total{"
_LONGEST: Final = "ottla_loop_longest_stall_seconds "


class Stalls(NamedTuple):
    """What a broker has counted: its longest stall, and count and seconds by what held the loop."""

    longest_ms: float
    counts: dict[str, int]
    total_ms: dict[str, float]


def read_stalls(metrics: str) -> Stalls:
    """Return the stalls in metrics of Prometheus' text format."""
    longest_ms = 0.0
    counts: dict[str, int] = {}
    total_ms: dict[str, float] = {}
    for line in metrics.splitlines():
        name, _, value = line.rpartition(" ")
        if line.startswith(_COUNT):
            counts[_held_by(name)] = int(value)
        elif line.startswith(_TOTAL):
            total_ms[_held_by(name)] = 1000 * float(value)
        elif line.startswith(_LONGEST):
            longest_ms = 1000 * float(value)
    return Stalls(longest_ms, counts, total_ms)


def _held_by(name: str) -> str:
    return name.partition('"')[2].rpartition('"')[0]


@contextmanager
def watch_loop(metrics: Callable[[], str], *, most_ms: float) -> Iterator[None]:
    """Fail with AssertionError if the loop was held for longer than this within the block.

    `metrics` returns a broker's metrics as text, for example `Cluster.metrics`.
    """
    before = read_stalls(metrics())
    yield
    after = read_stalls(metrics())
    held_ms = after.longest_ms
    new_ms = sum(after.total_ms.values()) - sum(before.total_ms.values())
    if held_ms <= before.longest_ms:  # no new stall is longer than one before
        held_ms = min(held_ms, new_ms)
    if held_ms > most_ms:
        held_by = [
            cause for cause, count in after.counts.items() if count > before.counts.get(cause, 0)
        ]
        raise AssertionError(
            f"the event loop was held for {held_ms:.0f} ms by: {', '.join(held_by)};"
            f" at most {most_ms:.0f} ms are allowed"
        )
