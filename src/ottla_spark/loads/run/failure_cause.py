"""Turns an exception of Spark into one sentence: the root cause without the stack trace."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.client.errors import ClientError
from ottla_spark.loads.errors import DataLost, LoadError, LoadUsageError
from ottla_spark.missing_source import missing_source_message
from ottla_spark.spark_messages import LONGEST, NO_FILE_SYSTEM, java_cause, without_codes

if TYPE_CHECKING:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

_RAISED = re.compile(
    r"^(?:\w+\.)*\w*(?:Error|Exception|Loss|Lost|Refused|Unreachable|TimedOut|Records): (.+)$"
)
_JAVA_CALL = "An error occurred while calling"
_LOSS = "DataLoss"
_SOURCE_ADVICE = " To continue with the records that are left"  # with an option of the source
_NO_SOURCE = "DATA_SOURCE_NOT_FOUND"


@contextmanager
def explain_failure() -> Iterator[None]:
    """Raise LoadError with one sentence instead of an exception of Spark with a Java trace."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise load_error(error, None) from error


def load_error(error: PySparkException | Py4JJavaError, kept: BaseException | None) -> Exception:
    """Return the error to raise for a failed query. `kept` is what a batch raised here."""
    if isinstance(kept, LoadError | ClientError | KeyboardInterrupt):
        return kept if isinstance(kept, Exception) else LoadError("interrupted")
    text = str(kept if kept is not None else error)
    if _NO_SOURCE in text:
        return LoadError(missing_source_message())
    cause = root_cause(text)
    if cause.startswith(NO_FILE_SYSTEM):
        return LoadUsageError(cause)
    if f"{_LOSS}:" in text or "DATA_LOSS" in text:
        lost = cause.partition(_SOURCE_ADVICE)[0].rstrip(".")
        return DataLost(f"{lost}. Load the remaining records with --allow-data-loss")
    return LoadError(f"the load stopped: {cause}. Run the same command to continue the load")


def root_cause(text: str) -> str:
    """Return the message of the innermost Python traceback, or else of Java's innermost cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    traces = [i for i, line in enumerate(lines) if "Traceback (most recent" in line]
    after = lines[traces[-1] + 1 :] if traces else []
    said = [found[1] for line in after if (found := _RAISED.match(line))]
    if not said or said[0].startswith(_JAVA_CALL):
        return java_cause("\n".join(after or lines))
    return without_codes(said[0])[:LONGEST].rstrip(".")
