"""What a Spark on other machines has to have, asked of its workers before anything is loaded.

Executors write the files of a table, the driver commits them. Where both do not see the same
files, Spark itself notices nothing: rows would be counted and be nowhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from ottla_spark.loading.errors import LoadUsageError
from ottla_spark.loading.failures import root_cause
from ottla_spark.loading.storage import Storage, local_path
from ottla_spark.loading.workplace import HIDDEN

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


class Answer(NamedTuple):
    """Of one task: where it ran, what it could not import, which files it did not see."""

    host: str
    missing: str
    unseen: Sequence[str]


def check_workers(spark: SparkSession, storage: Storage, places: Sequence[str]) -> None:
    """LoadUsageError if workers lack Ottla, or do not see the files of the driver in `places`."""
    context = spark.sparkContext
    if (context.master or "").startswith("local"):
        return
    with _marked(storage, [place for place in places if local_path(place)]) as marks:
        for answer in _ask(context, marks):
            refuse(answer)


def refuse(answer: Answer) -> None:
    """LoadUsageError if a worker lacks something, with words that say what to do."""
    if answer.missing:
        raise LoadUsageError(
            f"the Spark worker on {answer.host} says: {answer.missing}. Install ottla[spark] for"
            f" {_python()} on every worker, or set PYSPARK_PYTHON to the Python that has it"
        )
    if answer.unseen:
        place = answer.unseen[0].rpartition(f"/{HIDDEN}/")[0]
        raise LoadUsageError(
            f"the Spark worker on {answer.host} does not see {place} as this machine does: a table"
            " has to lie where all of them reach it, on a shared file system or an object store"
        )


@contextmanager
def _marked(storage: Storage, places: Sequence[str]) -> Iterator[list[str]]:
    """A file in each place as long as this lasts."""
    marks = [f"{place}/{HIDDEN}/seen-{uuid4().hex[:8]}" for place in places]
    try:
        for mark in marks:
            storage.write_text(mark, "for the workers to see\n")
        yield [path for mark in marks if (path := local_path(mark))]
    finally:
        for mark in marks:
            storage.remove(mark)


def _ask(context: SparkContext, marks: list[str]) -> list[Answer]:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    def look(_: int) -> tuple[str, str, list[str]]:  # in here, so that it travels by value
        import os
        import socket

        try:
            import pyspark_ottla  # noqa: F401

            missing = ""
        except ImportError as error:
            missing = str(error)
        return socket.gethostname(), missing, [mark for mark in marks if not os.path.exists(mark)]

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
    """The innermost cause that Java names, or what Python said."""
    caused = [line for line in text.splitlines() if line.startswith("Caused by: ")]
    return caused[-1].removeprefix("Caused by: ") if caused else root_cause(text)


def _python() -> str:
    return os.environ.get("PYSPARK_PYTHON", "python3")
