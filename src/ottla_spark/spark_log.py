"""The log file of a command on Spark: it has everything that Spark prints, and the tracebacks.

The command itself prints one message. The file is kept only if the command failed. With
`--verbose` there is no file, and everything goes to stderr.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ottla_spark.java import NoSpark
from ottla_spark.spark_messages import java_cause


class UnexpectedError(Exception):
    """An error that nobody has foreseen. The message is its first line."""


@contextmanager
def spark_log(*expected: type[Exception], verbose: bool) -> Iterator[Path | None]:
    """Yield the path of the log file; None with `verbose`. Remove the file after success.

    Errors of the types in `expected` have messages for people. Any other error is raised as
    UnexpectedError. If there is more to tell than the message, a note at the error names the file.
    """
    path = None if verbose else _new_file()
    is_kept = False
    try:
        yield path
    except Exception as error:
        if isinstance(error, expected) and error.__cause__ is None:
            raise
        shown = error if isinstance(error, (NoSpark, *expected)) else _unexpected(error)
        is_kept = path is not None
        _write_trace(path, error)
        if path is not None:
            shown.add_note(f"details are in {path}")
        raise shown from error.__cause__ or error
    finally:
        if path is not None and not is_kept:
            path.unlink(missing_ok=True)


def message_of(error: Exception) -> str:
    """Return the message of an error and its notes, a line each."""
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


def _new_file() -> Path:
    descriptor, name = tempfile.mkstemp(prefix="ottla-spark-", suffix=".log")
    os.close(descriptor)
    return Path(name)


def _write_trace(path: Path | None, error: Exception) -> None:
    trace = "".join(traceback.format_exception(error))
    if path is None:
        print(trace, end="", file=sys.stderr)
        return
    with path.open("a") as file:
        file.write(trace)


def _unexpected(error: Exception) -> UnexpectedError:
    from py4j.protocol import Py4JJavaError

    if isinstance(error, Py4JJavaError):
        return UnexpectedError(java_cause(str(error)))
    first = next(iter(str(error).splitlines()), "")
    return UnexpectedError(f"{type(error).__name__}: {first}" if first else repr(error))
