"""Sizes and durations in options, such as 128m and 1h30m."""

from __future__ import annotations

import re

from ottla_spark.loads.errors import LoadUsageError

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?)i?b?", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
MOST_BYTES = 1 << 40


def parse_size(text: str, option: str) -> int:
    """Return the bytes of a size such as 128m, 1g, 64MiB or a plain number."""
    found = _SIZE.fullmatch(text.strip())
    size = int(float(found[1]) * _UNITS[found[2].lower()]) if found else 0
    if not 0 < size <= MOST_BYTES:
        raise LoadUsageError(f"{option} {text!r} should be a size such as 128m or 1g")
    return size


def parse_duration_s(text: str, option: str) -> float:
    """Return the seconds of a duration such as 5m, 1h30m or 500ms."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise LoadUsageError(f"{option} {text!r} should be a duration such as 30s, 5m or 1h30m")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)
