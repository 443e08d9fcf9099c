"""When a pipeline runs, as a person says it who starts it."""

from __future__ import annotations

from ottla_spark.pipelines.spec.durations import EXPECTED, duration_ms
from ottla_spark.pipelines.spec.model import Always, Every, Once, Trigger


def choose_trigger(once: bool, every: str | None, always: bool) -> Trigger | None:
    """What was said in place of the file's trigger; ValueError when that is two things."""
    if once + always + (every is not None) > 1:
        raise ValueError("give one of once, every and always")
    if once:
        return Once()
    if always:
        return Always()
    if every is None:
        return None
    interval_ms = duration_ms(every)
    if not interval_ms:
        raise ValueError(f"every {every!r} {EXPECTED}")
    return Every(interval_ms)
