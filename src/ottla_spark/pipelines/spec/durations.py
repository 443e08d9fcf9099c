"""Durations in pipeline files: 5m, 90s, 1h30m, 10 minutes, 1 hour 30 minutes."""

from __future__ import annotations

import re
from typing import Final

_UNITS_MS: Final = {
    "ms": 1,
    "millisecond": 1,
    "s": 1_000,
    "sec": 1_000,
    "second": 1_000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "w": 604_800_000,
    "week": 604_800_000,
}
_PART: Final = re.compile(r"\s*(\d{1,12}(?:\.\d{1,6})?)\s*([a-z]+)", re.ASCII)
MAX_MS: Final = 100 * 366 * 86_400_000
EXPECTED: Final = "should look like 90s, 5m, 1h30m or 10 minutes"


def duration_ms(text: str) -> int | None:
    """Return milliseconds; None if the text is not a duration."""
    rest = text.strip().lower()
    total = 0.0
    while rest:
        part = _PART.match(rest)
        factor = part and (_UNITS_MS.get(part[2]) or _UNITS_MS.get(part[2].removesuffix("s")))
        if not part or not factor:
            return None
        total += float(part[1]) * factor
        rest = rest[part.end() :].lstrip()
    return int(total) if text.strip() and total <= MAX_MS else None
