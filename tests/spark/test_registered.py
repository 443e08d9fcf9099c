"""What Spark needs to find the source by itself."""

from __future__ import annotations

import pkgutil


def test_spark_finds_the_module_by_its_name() -> None:
    assert "pyspark_ottla" in {module.name for module in pkgutil.iter_modules()}
