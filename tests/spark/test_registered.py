"""What Spark needs to find the source by itself."""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING

import pytest

from ottla_spark.missing_source import NoDataSource, explain_missing_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_finds_the_module_by_its_name() -> None:
    assert "pyspark_ottla" in {module.name for module in pkgutil.iter_modules()}


def test_a_source_that_spark_does_not_find_is_explained(spark: SparkSession) -> None:
    with pytest.raises(NoDataSource, match="Activate the environment"), explain_missing_source():
        spark.read.format("ottla-of-another-environment").load()
