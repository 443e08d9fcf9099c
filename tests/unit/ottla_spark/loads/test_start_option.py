"""The option --from: earliest, latest, a time, offsets."""

from __future__ import annotations

import json

import pytest

from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.options.start_option import start_options


@pytest.mark.parametrize("text", ["2026-01-01", "2026-01-01T00:00:00Z", "2026-01-01T01:00+01:00"])
def test_a_time(text: str) -> None:
    found = start_options(text, "t")
    assert found["startingTimestamp"] == "1767225600000"
    assert found["startingOffsetsByTimestampStrategy"] == "latest"


@pytest.mark.parametrize("text", ['{"0": 5, "1": -2}', '{"t": {"0": 5, "1": -2}}'])
def test_offsets(text: str) -> None:
    assert json.loads(start_options(text, "t")["startingOffsets"]) == {"t": {"0": 5, "1": -2}}


def test_words() -> None:
    assert start_options("latest", "t") == {"startingOffsets": "latest"}


@pytest.mark.parametrize(
    "text", ["5", "", "yesterday", "{", '{"a": 1}', '{"0": "x"}', '{"0": -3}', "1960-01-01"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(LoadUsageError, match="--from"):
        start_options(text, "t")
