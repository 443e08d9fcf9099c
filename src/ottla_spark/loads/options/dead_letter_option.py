"""The option --dead-letters: where records go that do not fit the table."""

from __future__ import annotations

from dataclasses import dataclass

from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.state.object_store import is_object_store
from ottla_spark.loads.targets.address import absolute


@dataclass(frozen=True)
class DeadLetters:
    """A topic, or the path of a table. If both are empty: a table beside the target.

    The table is a Delta table if `is_delta` is set or if the path is in an object store, else a
    Parquet table.
    """

    topic: str = ""
    path: str = ""
    is_delta: bool = False


def parse_dead_letters(text: str | None) -> DeadLetters:
    """Return what `topic:NAME`, `parquet:PATH` or `delta:PATH` means; None means the default."""
    if text is None:
        return DeadLetters()
    kind, _, place = text.partition(":")
    if not place or kind not in {"topic", "parquet", "delta"}:
        raise LoadUsageError(
            f"--dead-letters {text!r} should be topic:NAME, parquet:PATH or delta:PATH"
        )
    if kind == "topic":
        return DeadLetters(topic=place)
    if kind == "parquet" and is_object_store(place):
        raise LoadUsageError(f"--dead-letters {text}: use delta:{place}, or a topic")
    return DeadLetters(path=absolute(place), is_delta=kind == "delta")
