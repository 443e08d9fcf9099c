"""Column statistics of a Parquet file for Delta's log, so that readers can skip files.

Only types that all readers order the same way: integers, dates and timestamps. Delta keeps
timestamps in milliseconds, so the highest one is rounded up.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Any

_MILLISECOND = timedelta(milliseconds=1)


def delta_statistics(footer: Any) -> dict[str, object]:
    """Return the row count, and the null count, lowest and highest value of each column."""
    lowest: dict[str, object] = {}
    highest: dict[str, object] = {}
    nulls: dict[str, int] = {}
    for place in range(footer.num_columns):
        column = footer.schema.column(place)
        if column.path != column.name:
            continue  # inside a struct, a list or a map
        found = [footer.row_group(g).column(place).statistics for g in range(footer.num_row_groups)]
        if any(each is None or not each.has_null_count for each in found):
            continue
        nulls[column.name] = sum(each.null_count for each in found)
        ends = _ends(found)
        if ends is not None:
            lowest[column.name], highest[column.name] = ends
    return {
        "numRecords": footer.num_rows,
        "minValues": lowest,
        "maxValues": highest,
        "nullCount": nulls,
    }


def _ends(found: Sequence[Any]) -> tuple[object, object] | None:
    """Return the lowest and the highest value of all row groups; None if they are not known.

    Python has no times after the year 9999, so they are not known there. Rounding up also leads
    there from 9999-12-31T23:59:59.999, with which many systems mean "without end".
    """
    with_values = [each for each in found if each.num_values]
    if not with_values or not all(each.has_min_max for each in with_values):
        return None
    try:
        ends = [(each.min, each.max) for each in with_values]
        low, high = _low(min(end[0] for end in ends)), _high(max(end[1] for end in ends))
    except OverflowError:
        return None
    return None if low is None or high is None else (low, high)


def _low(value: object) -> object:
    if isinstance(value, datetime):
        return _timestamp(value)
    return _plain(value)


def _high(value: object) -> object:
    if isinstance(value, datetime):
        return _timestamp(value + _MILLISECOND)
    return _plain(value)


def _plain(value: object) -> object:
    if isinstance(value, date):
        return value.isoformat()
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _timestamp(value: datetime) -> str:
    zone = "Z" if value.tzinfo is not None else ""
    return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + zone
