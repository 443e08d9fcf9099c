"""Why a query ended, in the words of whoever failed first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla_spark.pipelines.spark_words import plain_text

if TYPE_CHECKING:
    from pyspark.errors import PySparkException, StreamingQueryException

_HINTS: Final = {
    "MALFORMED_RECORD_IN_PARSING": "; `bad_records: drop` or `keep` at the source goes on",
}
_TRACEBACK: Final = "Traceback (most recent call last):\n"


class QueryFailed(Exception):
    """A query of a pipeline ended with an error; the message says which and why."""


def cause_of(error: StreamingQueryException) -> str:
    """The reason in a line or two: a Python exception's own words, or those of Spark's cause.

    Of a chain of causes the deepest that Spark has a name for is the one that explains; below
    it libraries speak, above it everyone through whom it passed.
    """
    raised = _raised_in_python(str(error))
    if raised:
        return raised
    causes: list[PySparkException] = [error]
    while (inner := getattr(causes[-1], "_cause", None)) is not None:
        causes.append(inner)
    named = [cause for cause in causes[1:] if cause.getCondition()]
    best = named[-1] if named else causes[-1]
    condition = best.getCondition() or ""
    hint = next((hint for start, hint in _HINTS.items() if condition.startswith(start)), "")
    return plain_text(str(best)) + hint


def _raised_in_python(text: str) -> str:
    """The line after the last Python traceback, which is the exception itself."""
    _, found, rest = text.rpartition(_TRACEBACK)
    if not found:
        return ""
    return next((line.strip() for line in rest.splitlines() if line[:1].strip()), "")
