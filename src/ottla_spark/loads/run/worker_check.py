"""Checks Spark workers on other machines before anything is written.

Executors write the files of a table, and the driver commits them. If they do not see the same
files, rows are lost, and Spark does not notice.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.run.failure_cause import root_cause
from ottla_spark.loads.state.storage import local_path

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


class Answer(NamedTuple):
    """The answer of one task: its host, its import error, the directories it does not see."""

    host: str
    missing: str
    unseen: Sequence[str]


def check_workers(spark: SparkSession, places: Sequence[str]) -> None:
    """Raise LoadUsageError if workers lack Ottla or do not see the driver's files in `places`."""
    for answer in ask_workers(spark, places):
        check_answer(answer)


def ask_workers(spark: SparkSession, places: Sequence[str]) -> list[Answer]:
    """Return the answers of tasks on the workers; nothing if Spark runs on this machine."""
    context = spark.sparkContext
    if (context.master or "").startswith("local"):
        return []
    with _marked([place for place in places if local_path(place)]) as marks:
        return _ask(context, marks)


def check_answer(answer: Answer) -> None:
    """Raise LoadUsageError if a worker lacks something; the message says what to do."""
    if answer.missing:
        raise LoadUsageError(missing_message(answer))
    for place in answer.unseen:
        raise LoadUsageError(unseen_message(answer, place))


def missing_message(answer: Answer) -> str:
    """Return the message for a worker that cannot import Ottla."""
    return (
        f"the Spark worker on {answer.host} says: {answer.missing}. Install ottla[spark] for"
        f" {_python()} on every worker, or set PYSPARK_PYTHON to the Python that has it"
    )


def unseen_message(answer: Answer, place: str) -> str:
    """Return the message for a directory that a worker does not see."""
    return (
        f"the Spark worker on {answer.host} does not see {place} as this machine does: put it on"
        " a shared file system or an object store that all machines reach"
    )


@contextmanager
def _marked(places: Sequence[str]) -> Iterator[dict[str, str]]:
    """Create a file in each directory; yield its path by directory; remove the files at the end.

    If a directory does not exist yet, the file is created in its nearest existing parent, so
    nothing is left behind.
    """
    marks: dict[str, Path] = {}
    try:
        for place in places:
            mark = _existing(Path(local_path(place) or place)) / f"_ottla-seen-{uuid4().hex[:8]}"
            try:
                mark.touch()
            except OSError as error:
                raise LoadUsageError(f"cannot write to {mark.parent}: {error.strerror}") from None
            marks[place] = mark
        yield {place: str(mark) for place, mark in marks.items()}
    finally:
        for mark in marks.values():
            mark.unlink(missing_ok=True)


def _existing(place: Path) -> Path:
    return next(found for found in (place, *place.parents) if found.is_dir())


def _ask(context: SparkContext, marks: Mapping[str, str]) -> list[Answer]:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    # A local function, so that Spark pickles it by value.
    def look(_: int) -> tuple[str, str, list[str]]:
        import os
        import socket

        try:
            import pyspark_ottla  # noqa: F401

            missing = ""
        except ImportError as error:
            missing = str(error)
        unseen = [place for place, mark in marks.items() if not os.path.exists(mark)]
        return socket.gethostname(), missing, unseen

    tasks = 2 * context.defaultParallelism
    try:
        found = context.parallelize(range(tasks), tasks).map(look).collect()
    except (Py4JJavaError, PySparkException) as error:
        raise LoadUsageError(
            f"the Spark workers cannot run {_python()}: {_cause(str(error))}."
            " Set PYSPARK_PYTHON to a Python of this version that every worker has"
        ) from None
    return [Answer(*each) for each in found]


def _cause(text: str) -> str:
    """Return the innermost cause that Java names, or else Python's message."""
    caused = [line for line in text.splitlines() if line.startswith("Caused by: ")]
    return caused[-1].removeprefix("Caused by: ") if caused else root_cause(text)


def _python() -> str:
    return os.environ.get("PYSPARK_PYTHON", "python3")
