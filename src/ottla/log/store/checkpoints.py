"""Checkpoint files: a line with the version, a line with the count, then one line for each entry.

Used for leader epochs and, per log directory, for recovery points, log start offsets and
high watermarks. Reading a damaged one raises CorruptCheckpoint: the caller knows what is
safe to assume then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from ottla.model.ids import TopicPartition
from ottla.model.steps import Steps
from ottla.ports import Files, read_file

_VERSION: Final = "0"
_LINES_A_STEP: Final = 500


class CorruptCheckpoint(ValueError):
    """The file is not a checkpoint of a known version."""


def encode_lines(lines: Sequence[str]) -> bytes:
    """Return the content of a checkpoint with these entries."""
    return "\n".join((_VERSION, str(len(lines)), *lines, "")).encode()


def decode_lines(content: bytes) -> list[list[str]]:
    """Return the entries of a checkpoint, split at blanks; an empty file has none."""
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError:
        raise CorruptCheckpoint("not text") from None
    if len(lines) < 2:
        return []
    if lines[0].strip() != _VERSION:
        raise CorruptCheckpoint(f"version {lines[0]!r} instead of {_VERSION}")
    if lines[1].strip() != str(len(lines) - 2):
        raise CorruptCheckpoint(f"{lines[1]!r} entries announced, {len(lines) - 2} found")
    return [line.split() for line in lines[2:]]


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> Steps[bytes]:
    """Return the content of a checkpoint with an offset for each partition."""
    parts = [f"{_VERSION}\n{len(offsets)}\n"]
    rest = iter(offsets.items())
    while some := list(islice(rest, _LINES_A_STEP)):
        parts.append("".join([f"{p.topic} {p.partition} {offset}\n" for p, offset in some]))
        yield
    return "".join(parts).encode()


def decode_offsets(content: bytes) -> dict[TopicPartition, int]:
    """Return the offsets of a checkpoint; raise CorruptCheckpoint."""
    offsets = {}
    for fields in decode_lines(content):
        try:
            topic, partition, offset = fields
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise CorruptCheckpoint(f"not a partition and an offset: {' '.join(fields)}") from None
    return offsets


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """Read the offsets of a checkpoint file, none if there is no file; raise CorruptCheckpoint."""
    try:
        return decode_offsets(read_file(files, path))
    except FileNotFoundError:
        return {}
