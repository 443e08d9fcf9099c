"""Finds the cause of a failed query in Spark's exception."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ottla_spark.pipelines.spark_errors import plain_text
from ottla_spark.spark_messages import without_codes

if TYPE_CHECKING:
    from pyspark.errors import StreamingQueryException

_NAMED: Final = re.compile(r"(?:[\w.$]+: )?\[([A-Z][A-Z0-9_.]+)\] ")
_HINTS: Final = {
    "MALFORMED_RECORD_IN_PARSING": "; set `bad_records: drop` or `keep` at the source to continue",
}
_SLOW_PYTHON: Final = "Timed out while waiting for the Python worker to connect back"
_SPARKS_OWN: Final = "pyspark.errors."
_TRACEBACK: Final = "Traceback (most recent call last):\n"


class QueryFailed(Exception):
    """A query of a pipeline failed; the message says which one and why."""


def cause_of(error: StreamingQueryException) -> str:
    """Return the cause in a line or two: the message of a Python exception, or of Spark.

    Of a chain of causes, the deepest one with a Spark error name explains the failure best.
    """
    raised = _raised_in_python(str(error))
    if raised:
        return raised
    texts = [str(error)]
    inner: BaseException | None = error
    while (inner := getattr(inner, "_cause", None)) is not None:
        texts.append(str(inner))
    named = [
        (found[1], text[found.start(1) - 1 :]) for text in texts if (found := _NAMED.match(text))
    ]
    condition, text = named[-1] if named else ("", texts[-1])
    hint = next((hint for start, hint in _HINTS.items() if condition.startswith(start)), "")
    return plain_text(text) + hint


def is_slow_python(error: StreamingQueryException) -> bool:
    """Return whether a Python process did not start within Spark's timeout."""
    return _SLOW_PYTHON in str(error)


def _raised_in_python(text: str) -> str:
    """Return the line of the exception after the last Python traceback.

    An error of Spark has a traceback too, where a table is written by a function in Python.
    """
    _, found, rest = text.rpartition(_TRACEBACK)
    if not found:
        return ""
    line = next((line.strip() for line in rest.splitlines() if line[:1].strip()), "")
    return without_codes(line) if line.startswith(_SPARKS_OWN) else line
