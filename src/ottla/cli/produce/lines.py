"""Lines of a file, pipe or terminal, read as they arrive.

Whole lines are returned in groups. A group says whether more input is waiting; if not, it is
time to send the lines read so far. A line has at most MAX_LINE_BYTES, which bounds memory.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from typing import NamedTuple

from ottla.cli.errors import DataError

MAX_LINE_BYTES = 128 * 1024 * 1024
CHUNK_BYTES = 256 * 1024
PAUSE_S = 0.005


class Lines(NamedTuple):
    """Whole lines without line endings. `paused` is true if no more input is waiting."""

    lines: list[bytes]
    paused: bool


def read_lines(descriptor: int) -> Iterator[Lines]:
    """Yield the lines of an open file until it ends. Raise DataError if a line is too long."""
    begun: list[bytes] = []
    begun_bytes = 0
    while chunk := os.read(descriptor, CHUNK_BYTES):
        lines = chunk.split(b"\n")
        begun.append(lines[0])
        begun_bytes += len(lines[0])
        if begun_bytes > MAX_LINE_BYTES:
            raise DataError(f"a line is longer than {MAX_LINE_BYTES} bytes")
        if len(lines) > 1:
            lines[0] = b"".join(begun)
            begun = [lines.pop()]
            begun_bytes = len(begun[0])
            yield Lines(lines, paused=not _has_more(descriptor))
    if last := b"".join(begun):
        yield Lines([last], paused=True)


def _has_more(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], PAUSE_S)[0])
