"""One sentence from the texts of Spark and Java."""

from __future__ import annotations

import pytest

from ottla_spark.loads.run.failure_cause import root_cause
from ottla_spark.spark_messages import java_cause

CALL = "An error occurred while calling o12.start.\n"
PYTHON = """\
org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] Traceback (most recent call last):
  File "f.py", line 5, in g
    return 1 // 0
ZeroDivisionError: integer division or modulo by zero
 SQLSTATE: 38000
\tat org.apache.spark.Runner.run(Runner.scala:1)
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (f"{CALL}: java.lang.IllegalArgumentException: no master\n\tat a.b(C.java:1)", "no master"),
        (
            f"{CALL}: a.SparkException: job failed\n\tat a.b(C.java:1)\n"
            "Caused by: java.io.IOException: [IO_FAILED] disk full SQLSTATE: 58030\n\t... 1 more",
            "disk full",
        ),
        ("java.lang.RuntimeException: java.io.IOException: inner", "inner"),
        ("plain words.", "plain words"),
        ("", "no reason given"),
    ],
)
def test_the_innermost_cause_without_codes(text: str, cause: str) -> None:
    assert java_cause(text) == cause


def test_a_missing_file_system_says_what_to_use() -> None:
    text = f"{CALL}: a.B: java.lang.C: Class org.apache.hadoop.fs.s3a.S3A not found"
    assert "s3://BUCKET" in java_cause(text)
    assert "hadoop-aws" in java_cause(text)


def test_the_exception_of_a_function() -> None:
    assert root_cause(PYTHON) == "integer division or modulo by zero"
