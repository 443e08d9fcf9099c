"""What a reader of a log file reports: rows, notes, damage and a summary.

Readers yield findings one by one, so that a file of any size is shown while it is read. Field
names are those of Kafka's DumpLogSegments.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ottla.cli.output import JsonValue

Fields: TypeAlias = dict[str, JsonValue]


class Row(NamedTuple):
    """One item of a file: a batch, a record, an index entry or a line."""

    kind: str
    fields: Fields


class Note(NamedTuple):
    """A remark that is not damage."""

    text: str


class Damage(NamedTuple):
    """What is wrong, at which position, and how many bytes there are from there to the end."""

    position: int
    reason: str
    bytes_left: int
    resumes_at: int | None = None
    """The position of the next intact batch after the damage, if there is one."""


class Summary(NamedTuple):
    """The totals of a file. This is its last finding."""

    fields: Fields


Finding: TypeAlias = Row | Note | Damage | Summary


def bytes_as_json(content: bytes | None) -> JsonValue:
    """Return UTF-8 bytes as text, and other bytes as `{"hex": ...}`."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"hex": content.hex()}
