"""Prints what is left of a key, segment by segment, and what that does not prove."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.cli.erase.replica_search import ReplicaFinding
from ottla.cli.errors import tell
from ottla.cli.output import Column, JsonValue, print_json, print_table
from ottla.cli.sizes import size_text

_COLUMNS = [
    Column("partition", True),
    Column("broker", True),
    Column("segment", True),
    Column("size", True),
    Column("records", True),
    Column("values of the key", True),
    Column("tombstones", True),
]
NOT_PROVEN = (
    "This was read through the brokers, and from the remote tier if there is one. It does not prove"
    " what is outside of them: records before the log start offset stay in the first segment until"
    " it is deleted; files of replaced segments are kept for file.delete.delay.ms (a"
    " minute) and then deleted, and their blocks are free but not overwritten; an object store may"
    " keep versions; consumers, mirrors and backups may have copies."
    " The tombstone, which contains the key, goes after delete.retention.ms."
)


def print_findings(found: Sequence[ReplicaFinding]) -> None:
    """Print a row for each segment."""
    rows = []
    for replica in found:
        where = "tier" if replica.broker is None else str(replica.broker)
        begin = [str(replica.partition), where]
        if replica.error is not None:
            rows.append([*begin, "?", "?", "?", "?", "?"])
        rows += [
            [
                *begin,
                str(segment.base_offset),
                size_text(segment.size),
                str(segment.records),
                _offsets(segment.values),
                _offsets(segment.tombstones),
            ]
            for segment in replica.segments
        ]
    print_table(_COLUMNS, rows)
    tell(NOT_PROVEN)


def print_findings_as_json(
    topic: str, written: dict[int, int], found: Sequence[ReplicaFinding], is_erased: bool
) -> None:
    """Print everything as JSON."""
    replicas: list[JsonValue] = [
        {
            "partition": replica.partition,
            "broker": replica.broker,
            "remote": replica.broker is None,
            "error": replica.error,
            "segments": [dict(segment._asdict()) for segment in replica.segments],
        }
        for replica in found
    ]
    tombstones: list[JsonValue] = [
        {"partition": index, "offset": offset} for index, offset in sorted(written.items())
    ]
    print_json(
        {"topic": topic, "erased": is_erased, "tombstones": tombstones, "replicas": replicas}
    )


def _offsets(offsets: list[int]) -> str:
    if not offsets:
        return "0"
    first = ", ".join(str(offset) for offset in offsets[:3])
    more = ", ..." if len(offsets) > 3 else ""
    return f"{len(offsets)} (offset {first}{more})"
