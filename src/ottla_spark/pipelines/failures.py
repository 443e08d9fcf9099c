"""Why a query ended, in the words of whoever failed first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla_spark.pipelines.spark_words import plain_text

if TYPE_CHECKING:
    from pyspark.errors import StreamingQueryException

_TRACEBACK: Final = "Traceback (most recent call last):\n"


class QueryFailed(Exception):
    """A query of a pipeline ended with an error; the message says which and why."""


def cause_of(error: StreamingQueryException) -> str:
    """The reason in a line or two: a Python exception's own words, or Spark's innermost cause."""
    raised = _raised_in_python(str(error))
    if raised:
        return raised
    inner: BaseException | None = error
    words = plain_text(str(error))
    while (inner := getattr(inner, "_cause", None)) is not None:
        words = plain_text(str(inner)) or words
    return words


def _raised_in_python(text: str) -> str:
    """The line after the last Python traceback, which is the exception itself."""
    _, found, rest = text.rpartition(_TRACEBACK)
    if not found:
        return ""
    return next((line.strip() for line in rest.splitlines() if line[:1].strip()), "")
