"""The cause of a failed query."""

from __future__ import annotations

import itertools

import pytest

pytest.importorskip("pyspark", reason="needs ottla[spark]")

from pyspark.errors import StreamingQueryException

from ottla_spark.pipelines.run.failures import cause_of, is_slow_python

MALFORMED = (
    "org.apache.spark.SparkException: [MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed"
    " records are detected in record parsing: [null].\nParse Mode: FAILFAST."
    " SQLSTATE: 22023\n\nJVM stacktrace:\n..."
)
PYTHON = """\
[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):
  File "worker.py", line 1, in main
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "fns.py", line 7, in raised
    raise ValueError("no square")
ValueError: no square
 SQLSTATE: 38000
\tat org.apache.spark.api.python.Runner
=== Streaming Query ===
Identifier: numbers
"""

WRITING_A_TABLE = """\
An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "captured.py", line 262, in deco
    raise converted from None
pyspark.errors.exceptions.captured.SparkRuntimeException: [USER_RAISED_EXCEPTION] Malformed \
records in sources.in: not one JSON object SQLSTATE: P0001

JVM stacktrace:
org.apache.spark.SparkRuntimeException
"""


def chain(*texts: str) -> StreamingQueryException:
    errors = [StreamingQueryException(text) for text in texts]
    for outer, inner in itertools.pairwise(errors):
        outer._cause = inner  # type: ignore[attr-defined]
    return errors[0]


def test_the_message_of_a_python_exception() -> None:
    assert cause_of(chain(PYTHON)) == "ValueError: no square"


def test_an_error_of_spark_that_python_raised_again() -> None:
    words = "Malformed records in sources.in: not one JSON object"
    assert cause_of(chain(WRITING_A_TABLE)) == words


def test_the_deepest_cause_with_a_spark_name_and_a_hint() -> None:
    error = chain("[STREAM_FAILED] Query failed", MALFORMED, "com.x.JsonParseException: token")
    words = cause_of(error)
    assert words.startswith("Malformed records are detected in record parsing: [null]. Parse Mode")
    assert words.endswith("set `bad_records: drop` or `keep` at the source to continue")


def test_the_deepest_cause_without_a_spark_name() -> None:
    assert cause_of(chain("Job aborted", "java.io.IOException: disk full")) == (
        "java.io.IOException: disk full"
    )


def test_a_python_that_was_slow_to_start() -> None:
    slow = "java.net.SocketTimeoutException: Timed out while waiting for the Python worker"
    assert is_slow_python(chain(slow + " to connect back"))
    assert not is_slow_python(chain("Timed out"))
