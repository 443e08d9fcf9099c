"""Shortens Spark's errors to a sentence, and finds the SQL position that they refer to."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ottla_spark.pipelines.spec.problems import closest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.errors import PySparkException

_TAIL: Final = re.compile(r"\s*SQLSTATE: \w{5}.*", re.DOTALL)
_HEAD: Final = re.compile(r"^\s*\[[A-Z0-9_.]+\]\s*")
_PARSER_PLACE: Final = re.compile(r"\(line (\d+), pos (\d+)\)")
_SPARK_LOGGER: Final = "SQLQueryContextLogger"


@contextmanager
def quiet_spark() -> Iterator[None]:
    """Keep PySpark from logging errors that Ottla reports itself."""
    logger = logging.getLogger(_SPARK_LOGGER)
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def sentence(error: PySparkException, relations: Iterable[str] = ()) -> str:
    """Return Spark's message without codes and plans. `relations` serve as suggestions."""
    condition = error.getCondition() or ""
    about = error.getMessageParameters() or {}
    if condition.startswith("UNRESOLVED_COLUMN"):
        name = _unquoted(about.get("objectName") or about.get("colName", ""))
        known = about.get("proposal") or about.get("fieldNames", "")
        proposal = [_unquoted(word) for word in known.split(", ") if word]
        there = f"; the columns are {', '.join(proposal)}" if proposal else ""
        return f"there is no column {name!r}{closest(name, proposal) or there}"
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
        name = _unquoted(about.get("relationName", ""))
        return f"there is no source, step or table {name!r}{closest(name, relations)}"
    return plain_text(error.getMessage() or str(error))


def plain_text(message: str) -> str:
    """Return the first sentence or two of a message of Spark."""
    text = _HEAD.sub("", _TAIL.sub("", message)).strip()
    first = text.split("\n\n", 1)[0].split(";\n", 1)[0]
    return " ".join(first.split()).removesuffix(".")


def index_in(error: PySparkException, text: str) -> int:
    """Return the position of the error in a SQL text; 0 if Spark does not tell."""
    from pyspark.errors import QueryContextType

    for context in error.getQueryContext():
        if context.contextType() == QueryContextType.SQL:
            return max(0, context.startIndex())
    place = _PARSER_PLACE.search(str(error))
    if place is None:
        return 0
    lines = text.split("\n")[: int(place[1]) - 1]
    return sum(len(line) + 1 for line in lines) + int(place[2])


def _unquoted(name: str) -> str:
    return name.replace("`", "")
