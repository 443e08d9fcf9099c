"""What the filters of a batch query say about the offsets to read."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from pyspark_ottla.fetch.offset_range import OffsetRange
from pyspark_ottla.source.pushed_filters import pushed_filters, spark_pushes_filters

NO_ID = bytes(16)
RANGES = [OffsetRange("a", NO_ID, 0, 10, 100), OffsetRange("b", NO_ID, 1, 0, 20)]


def left(*filters: Filter) -> list[tuple[str, int, int]]:
    found = pushed_filters(filters).restrict(RANGES)
    return [(each.topic, each.start, each.end) for each in found if each.start < each.end]


@pytest.mark.parametrize(
    ("filters", "ranges"),
    [
        ([], [("a", 10, 100), ("b", 0, 20)]),
        ([EqualTo(("partition",), 1)], [("b", 0, 20)]),
        ([In(("partition",), (1, 7))], [("b", 0, 20)]),
        ([LessThan(("partition",), 1)], [("a", 10, 100)]),
        ([EqualTo(("topic",), "b")], [("b", 0, 20)]),
        ([GreaterThan(("offset",), 15)], [("a", 16, 100), ("b", 16, 20)]),
        ([GreaterThanOrEqual(("offset",), 15)], [("a", 15, 100), ("b", 15, 20)]),
        ([LessThan(("offset",), 15)], [("a", 10, 15), ("b", 0, 15)]),
        ([LessThanOrEqual(("offset",), 15)], [("a", 10, 16), ("b", 0, 16)]),
        ([EqualTo(("offset",), 50)], [("a", 50, 51)]),
        ([In(("offset",), (5, 12))], [("a", 10, 13), ("b", 5, 13)]),
        ([GreaterThan(("offset",), 30), LessThan(("offset",), 20)], []),
        ([Not(EqualTo(("partition",), 1))], [("a", 10, 100), ("b", 0, 20)]),
        ([StringStartsWith(("topic",), "b")], [("a", 10, 100), ("b", 0, 20)]),
        ([EqualTo(("value", "offset"), 3)], [("a", 10, 100), ("b", 0, 20)]),
        ([EqualTo(("offset",), None)], [("a", 10, 100), ("b", 0, 20)]),
    ],
)
def test_ranges_that_are_left(filters: list[Filter], ranges: list[tuple[str, int, int]]) -> None:
    assert left(*filters) == ranges


def test_only_lower_bounds_of_the_timestamp_count() -> None:
    time = datetime(2026, 1, 1, 0, 0, 0, 1500, tzinfo=UTC)
    ms = 1_767_225_600_001
    assert pushed_filters([GreaterThan(("timestamp",), time)]).from_ms == ms
    assert pushed_filters([EqualTo(("timestamp",), time)]).from_ms == ms
    assert pushed_filters([LessThan(("timestamp",), time)]).from_ms is None
    assert pushed_filters([GreaterThan(("timestamp",), time.replace(tzinfo=None))]).from_ms is None


def test_only_the_process_that_pushes_filters_gets_a_reader_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not spark_pushes_filters()
    planner = "pyspark.sql.worker.data_source_pushdown_filters"
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "pyspark.daemon", planner])
    assert spark_pushes_filters()
