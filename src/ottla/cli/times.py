"""Timestamps and durations of command-line options, converted to milliseconds."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from ottla.cli.errors import UsageError

_DURATION: Final = re.compile(
    r"P?(?:(?P<days>\d+)D)?(?:T?(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?"
    r"(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)
_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}

_LAST_TIMESTAMP_MS: Final = 2**63 - 1


def timestamp_ms(text: str, option: str) -> int:
    """Return the milliseconds of a time such as 2026-01-31T12:00:00, or of milliseconds as text.

    The time is local unless it names a time zone. Times before 1970 count as 1970: no message is
    older, and in Kafka's requests negative times have special meanings.
    """
    try:
        if text.isascii() and text.isdigit():
            found = int(text)
        else:
            found = int(datetime.fromisoformat(text).timestamp() * 1000)
        if found > _LAST_TIMESTAMP_MS:
            raise OverflowError
        return max(0, found)
    except (ValueError, OverflowError):
        raise UsageError(
            f"{option} {text!r} should be a time like 2026-01-31T12:00:00, or milliseconds"
        ) from None


def duration_ms(text: str, option: str) -> int:
    """Return the milliseconds of a duration: P1DT12H30M as in Kafka's tools, or 1d12h30m."""
    found = _DURATION.fullmatch(text)
    parts = {} if found is None else {k: v for k, v in found.groupdict().items() if v is not None}
    if not parts:
        raise UsageError(f"{option} {text!r} should be a duration like 1d12h30m or P1DT12H30M")
    return int(sum(float(number) * _MS[unit] for unit, number in parts.items()))
