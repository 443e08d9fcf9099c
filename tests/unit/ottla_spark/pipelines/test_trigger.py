"""The trigger that options choose."""

from __future__ import annotations

import pytest

from ottla_spark.pipelines.spec.model import Always, Every, Once
from ottla_spark.pipelines.spec.trigger import choose_trigger


def test_choices() -> None:
    assert choose_trigger(True, None, False) == Once()
    assert choose_trigger(False, "5m", False) == Every(300_000)
    assert choose_trigger(False, None, True) == Always()
    assert choose_trigger(False, None, False) is None


@pytest.mark.parametrize("every", ["soon", "0s", ""])
def test_invalid_durations(every: str) -> None:
    with pytest.raises(ValueError, match="should look like"):
        choose_trigger(False, every, False)


def test_two_triggers() -> None:
    with pytest.raises(ValueError, match="give only one of"):
        choose_trigger(True, "5m", False)
