"""What the writer of a stream says about a batch that failed."""

from __future__ import annotations

import pytest

from ottla.client.settings import ClientSettings
from pyspark_ottla.options.sink_options import SinkSettings
from pyspark_ottla.sink.writer import StreamWriter, Written

NOWHERE = ClientSettings("127.0.0.1:1")


def test_a_failed_batch_that_leaves_nothing_needs_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    writer = StreamWriter(SinkSettings(NOWHERE, topic="t", exactly_once=True))
    writer.abort([None, None], 3)  # no task has finished, so there is nothing to abort
    assert caplog.text == ""


def test_rows_that_stay_stored_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    writer = StreamWriter(SinkSettings(NOWHERE, topic="t", exactly_once=False))
    writer.abort([None, Written({"t": 5}, 100)], 3)
    assert "batch 3 failed and will be written again; these rows stay stored: 5 to t" in caplog.text
