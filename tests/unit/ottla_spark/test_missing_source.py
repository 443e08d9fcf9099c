"""What is said if Spark's Python does not have Ottla."""

from __future__ import annotations

import sys

import pytest
from pyspark.errors import AnalysisException

from ottla_spark.missing_source import NoDataSource, explain_missing_source


def test_the_message_names_both_pythons_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", "/other/python3")
    with pytest.raises(NoDataSource) as raised, explain_missing_source():
        raise AnalysisException("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: ottla.")
    for words in ("/other/python3", sys.executable, "Activate", "ottla_spark.session()"):
        assert words in str(raised.value)


def test_other_errors_stay() -> None:
    with pytest.raises(AnalysisException), explain_missing_source():
        raise AnalysisException("something else")
