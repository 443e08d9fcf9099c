"""What commands on Spark share: the check before they start, and an option."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import Annotated

from cyclopts import Parameter

from ottla.cli.errors import DataError

Verbose = Annotated[
    bool,
    Parameter(
        help="Print everything that Spark says, and tracebacks. Otherwise they go to a file.",
        show_default=False,
    ),
]
_NEEDED = ("pyspark", "pyarrow", "numba", "deltalake", "pyiceberg", "yaml")


def need_spark() -> None:
    """Raise DataError if a package of the Spark extra is not installed.

    This also silences py4j's logger. The command itself reports when the Java process ends, and
    py4j would print tracebacks as well.
    """
    logging.getLogger().addHandler(logging.NullHandler())
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise DataError(
            f"this command needs the extra spark. These packages are missing: {', '.join(missing)}."
            ' Install them with: pip install "ottla[spark]" (in a clone: pip install ".[spark]")'
        )
