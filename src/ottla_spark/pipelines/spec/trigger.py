"""The trigger that options of `run` choose in place of the file's."""

from __future__ import annotations

from ottla_spark.pipelines.spec.durations import EXPECTED, duration_ms
from ottla_spark.pipelines.spec.model import Always, Every, Once, Trigger


def choose_trigger(once: bool, every: str | None, always: bool) -> Trigger | None:
    """Return the chosen trigger; None if no option is set. Raise ValueError for two options."""
    if once + always + (every is not None) > 1:
        raise ValueError("give only one of once, every and always")
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
