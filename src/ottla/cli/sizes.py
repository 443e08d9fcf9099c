"""Sizes, shares and times in tables."""

from __future__ import annotations

from datetime import datetime

_UNITS = ("kB", "MB", "GB", "TB")


def size_text(size: int | None) -> str:
    """Return a number of bytes with three digits or so: `12.3 MB`."""
    if size is None:
        return "?"
    if size < 1000:
        return f"{size} B"
    power = 1
    while size >= 999_950 * 1000 ** (power - 1) and power < len(_UNITS):
        power += 1
    return f"{size / 1000**power:.1f} {_UNITS[power - 1]}"


def ratio_text(ratio: float | None) -> str:
    """Return a share in percent, `-` if there is none."""
    return "-" if ratio is None else f"{100 * ratio:.0f}%"


def time_text(timestamp_ms: int | None) -> str:
    """Return a local time to the second, `-` if there is none; the number if no calendar has it."""
    if timestamp_ms is None:
        return "-"
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000).isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
