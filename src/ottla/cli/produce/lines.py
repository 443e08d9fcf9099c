"""Lines of a file, pipe or terminal, as they arrive.

Whole lines are handed on in groups, and the reader hears when there is nothing more to
read for the moment, which is the time to send what was read. A line is at most
MAX_LINE_BYTES long, so that memory stays bounded whatever is fed in.
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
    """Whole lines without their ends; `paused` when no more are waiting to be read."""

    lines: list[bytes]
    paused: bool


def read_lines(descriptor: int) -> Iterator[Lines]:
    """The lines of an open file until it ends; DataError for one that is too long."""
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
