"""Parses single option values: numbers, booleans, durations. Errors name the option.

Spark passes options as a mapping from text to text. Names ignore case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MAX_LONG = 2**63 - 1
_UNITS_MS = {
    "us": 0.001,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_DURATION = re.compile(r"(\d+)\s*([a-z]*)", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d{1,19}", re.ASCII)


class OptionError(ValueError):
    """An option is missing, invalid or not supported here. The message says what to do."""


def boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    """Return the value of an option that is `true` or `false`, in any case."""
    text = options.get(name)
    if text is None:
        return default
    lowered = text.strip().lower()
    if lowered not in {"true", "false"}:
        raise OptionError(f"{name} is {text!r}: expected true or false")
    return lowered == "true"


def whole_number(text: str) -> int | None:
    """Return the number in a text, or None if it is not a whole number of at most 64 bits."""
    stripped = text.strip()
    if not _WHOLE.fullmatch(stripped):
        return None
    number = int(stripped)
    return number if -MAX_LONG - 1 <= number <= MAX_LONG else None


def positive(options: Mapping[str, str], name: str) -> int | None:
    """Return the value of an option that is a whole number above zero, or None if not set."""
    text = options.get(name)
    if text is None:
        return None
    number = whole_number(text)
    if number is None or number <= 0:
        raise OptionError(f"{name} is {text!r}: expected a whole number above 0")
    return number


def duration_ms(options: Mapping[str, str], name: str, default_ms: int) -> int:
    """Return a duration as Spark writes it: `15m`, `30s`, `500ms`. The default unit is ms."""
    text = options.get(name)
    if text is None:
        return default_ms
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or (match[2] or "ms") not in _UNITS_MS:
        units = ", ".join(_UNITS_MS)
        raise OptionError(f"{name} is {text!r}: expected a number and a unit ({units}), e.g. 15m")
    return int(int(match[1]) * _UNITS_MS[match[2] or "ms"])
