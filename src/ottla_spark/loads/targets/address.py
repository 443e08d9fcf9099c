"""What a load is told in one word: target, format, place for dead letters."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import StrEnum

from ottla_spark.loads.errors import LoadUsageError

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)
_EXPECTED = "parquet:PATH, delta:PATH or iceberg:CATALOG.NAMESPACE.TABLE"


class ValueFormat(StrEnum):
    """How values are read."""

    RAW = "raw"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class Kind(StrEnum):
    """The kinds of table."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


@dataclass(frozen=True)
class Target:
    """A table: `place` is a path or URI, for Iceberg the dotted name."""

    kind: Kind
    place: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.place}"

    @property
    def name(self) -> str:
        """The last part of the place, for names that people see."""
        if self.kind is Kind.ICEBERG:
            return self.place.rpartition(".")[2]
        return self.place.rstrip("/").rpartition("/")[2]


def parse_target(text: str) -> Target:
    """The target that a person wrote; relative paths are those of this process."""
    kind, _, place = text.partition(":")
    if kind not in set(Kind) or not place:
        raise LoadUsageError(f"--to {text!r} should be {_EXPECTED}")
    if Kind(kind) is Kind.ICEBERG:
        if len(place.split(".")) < 3 or not all(place.split(".")):
            raise LoadUsageError(f"--to {text!r} should be iceberg:CATALOG.NAMESPACE.TABLE")
        return Target(Kind.ICEBERG, place)
    return Target(Kind(kind), absolute(place))


@dataclass(frozen=True)
class DeadLetters:
    """Where records go that do not fit: a topic, or a Parquet table at a path (empty: default)."""

    topic: str = ""
    path: str = ""


def parse_dead_letters(text: str | None) -> DeadLetters:
    """`topic:NAME` or `parquet:PATH`; None for the table beside the target."""
    kind, _, place = (text or "").partition(":")
    if text is None:
        return DeadLetters()
    if not place or kind not in {"topic", "parquet"}:
        raise LoadUsageError(f"--dead-letters {text!r} should be topic:NAME or parquet:PATH")
    return DeadLetters(topic=place) if kind == "topic" else DeadLetters(path=absolute(place))


def parse_format(text: str) -> ValueFormat:
    """The format that a person named."""
    if text not in set(ValueFormat):
        raise LoadUsageError(f"--format {text!r} should be one of {', '.join(ValueFormat)}")
    return ValueFormat(text)


def absolute(place: str) -> str:
    """A URI as it is, without its last slash; a path made absolute."""
    if _SCHEME.match(place):
        local = place.removeprefix("file://") if place.startswith("file:///") else None
        return place.rstrip("/") if local is None else os.path.abspath(local)
    return os.path.abspath(os.path.expanduser(place))
