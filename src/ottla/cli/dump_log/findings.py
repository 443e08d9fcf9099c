"""What reading a file of a log brings up: rows, remarks, damage.

Readers yield these one by one, so that a file of any size is shown as it is read. Names of
fields are those that Kafka's own DumpLogSegments prints.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ottla.cli.output import JsonValue

Fields: TypeAlias = dict[str, JsonValue]


class Row(NamedTuple):
    """One thing a file holds: a batch, a record, an index entry, a line."""

    kind: str
    fields: Fields


class Note(NamedTuple):
    """Worth knowing, and nothing wrong."""

    text: str


class Damage(NamedTuple):
    """What is wrong, from which byte on, and how many bytes there are from there to the end."""

    position: int
    reason: str
    bytes_left: int
    resumes_at: int | None = None
    """Where, after bytes that make no sense, an intact batch begins again."""


class Summary(NamedTuple):
    """What a file held altogether; the last finding of a file."""

    fields: Fields


Finding: TypeAlias = Row | Note | Damage | Summary


def bytes_as_json(content: bytes | None) -> JsonValue:
    """Text where it is UTF-8, `{"hex": ...}` where it is not, so that nothing is lost."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"hex": content.hex()}
