"""Messages about workers that lack something."""

from __future__ import annotations

import pytest

from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.run.worker_check import Answer, check_answer


def test_a_complete_worker_passes() -> None:
    check_answer(Answer("w1", "", []))


def test_a_worker_without_ottla_is_named_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    with pytest.raises(LoadUsageError) as refused:
        check_answer(Answer("w1", "No module named 'pyspark_ottla'", []))
    assert str(refused.value) == (
        "the Spark worker on w1 says: No module named 'pyspark_ottla'. Install ottla[spark] for"
        " /opt/python on every worker, or set PYSPARK_PYTHON to the Python that has it"
    )


def test_a_worker_that_sees_other_files_is_named_with_the_table() -> None:
    with pytest.raises(LoadUsageError, match="on w2 does not see /lake/events as this machine"):
        check_answer(Answer("w2", "", ["/lake/events"]))
