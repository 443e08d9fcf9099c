"""The report of `ottla topics alter` when the second of its two requests fails."""

from __future__ import annotations

import json

import pytest

from ottla.cli.errors import FAILED
from ottla.cli.topics.alter import Altered, report_altered
from ottla.client.errors import Refused
from ottla.model.errors import ErrorCode


def test_a_half_altered_topic_says_what_was_changed(capsys: pytest.CaptureFixture[str]) -> None:
    error = Refused(ErrorCode.INVALID_PARTITIONS, "topic t: fewer than now")
    results = {"t": Altered(configs=True, partitions=False, error=error)}
    assert report_altered(["t", "later"], results, if_exists=False, json=True) == FAILED
    shown = capsys.readouterr()
    half, untried = json.loads(shown.out)
    assert (half["altered"], half["configs_altered"]) == (False, True)
    assert half["partitions_altered"] is False
    assert "its settings were changed, its partitions were not" in shown.err
    assert (untried["altered"], untried["error"]) == (False, "not tried")
    assert "topic later: not altered, because of the error before" in shown.err
