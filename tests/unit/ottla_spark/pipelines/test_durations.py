"""Durations in pipeline files."""

from __future__ import annotations

import pytest

from ottla_spark.pipelines.spec.durations import duration_ms


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("5m", 300_000),
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        ("10 minutes", 600_000),
        ("1 hour 30 minutes", 5_400_000),
        ("1.5 s", 1_500),
        ("250ms", 250),
        ("2 Days", 172_800_000),
        ("1 week", 604_800_000),
        ("0s", 0),
    ],
)
def test_durations(text: str, expected_ms: int) -> None:
    assert duration_ms(text) == expected_ms


@pytest.mark.parametrize(
    "text", ["", " ", "5", "m", "5 parsecs", "-5m", "5m!", "9" * 40 + "d", "999999w"]
)
def test_texts_that_are_no_durations(text: str) -> None:
    assert duration_ms(text) is None
