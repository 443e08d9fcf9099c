"""Column statistics of a Parquet file for Delta's log, so that readers can skip files.

Only types that all readers order the same way: integers, dates and timestamps. Delta keeps
timestamps in milliseconds, so the highest one is rounded up.
"""

from __future__ import annotations

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
        ends = [(each.min, each.max) for each in found if each.has_min_max]
        if ends and len(ends) == len([e for e in found if e.num_values]):
            low, high = _low(min(e[0] for e in ends)), _high(max(e[1] for e in ends))
            if low is not None and high is not None:
                lowest[column.name], highest[column.name] = low, high
    return {
        "numRecords": footer.num_rows,
        "minValues": lowest,
        "maxValues": highest,
        "nullCount": nulls,
    }


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
