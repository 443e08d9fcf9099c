"""Commands that need Spark: what they say where it is not installed, or when it ends."""

from __future__ import annotations

import logging
from importlib.util import find_spec

from ottla.cli.errors import DataError

_NEEDED = ("pyspark", "pyarrow", "numba", "deltalake", "pyiceberg", "yaml")


def need_spark() -> None:
    """DataError that names the extra unless everything it brings is installed.

    A Java process that ends is said in words; without a handler py4j would print tracebacks too.
    """
    logging.getLogger().addHandler(logging.NullHandler())
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise DataError(
            f"this command runs on Spark, and {', '.join(missing)} is not installed:"
            ' pip install "ottla[spark]"'
        )
