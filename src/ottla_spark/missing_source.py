"""Explains Spark's error DATA_SOURCE_NOT_FOUND for the format `ottla`.

Spark looks for data sources of Python with a Python program of its own choice: PYSPARK_PYTHON, or
else `python3` on the PATH. If a virtual environment is not activated, that is another Python.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_CONDITION = "DATA_SOURCE_NOT_FOUND"


class NoDataSource(Exception):
    """Spark's Python does not have Ottla; the message says what to do."""


@contextmanager
def explain_missing_source() -> Iterator[None]:
    """Raise NoDataSource instead of Spark's error, if Spark does not find the format."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:  # PySpark 4.3 has no class for it
        if f"[{_CONDITION}]" not in str(error):
            raise
        raise NoDataSource(missing_source_message()) from None


def missing_source_message() -> str:
    """Return what to do if Spark does not find the format `ottla`."""
    chosen = os.environ.get("PYSPARK_DRIVER_PYTHON") or os.environ.get("PYSPARK_PYTHON")
    used = chosen or f"{shutil.which('python3') or 'python3'} (python3 on the PATH)"
    return (
        f"Spark does not find the format ottla: it looks with {used}, which does not have Ottla."
        f" Activate the environment of {sys.executable}, or set PYSPARK_PYTHON to that program"
        " before the session starts, or create the session with ottla_spark.session()"
    )
