"""The option --dead-letters: where records go that do not fit the table."""

from __future__ import annotations

from dataclasses import dataclass

from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.targets.address import absolute


@dataclass(frozen=True)
class DeadLetters:
    """A topic, or the path of a Parquet table. If both are empty: a table beside the target."""

    topic: str = ""
    path: str = ""


def parse_dead_letters(text: str | None) -> DeadLetters:
    """Return what `topic:NAME` or `parquet:PATH` means; None means the default."""
    if text is None:
        return DeadLetters()
    kind, _, place = text.partition(":")
    if not place or kind not in {"topic", "parquet"}:
        raise LoadUsageError(f"--dead-letters {text!r} should be topic:NAME or parquet:PATH")
    return DeadLetters(topic=place) if kind == "topic" else DeadLetters(path=absolute(place))
