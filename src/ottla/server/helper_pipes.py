"""Reading from a socket or a pipe until all is there, in a helper process."""

from __future__ import annotations

import os


def read_exactly(fd: int, length: int) -> bytearray | None:
    """Wait for this many bytes and return them; None if the other side is gone."""
    data = bytearray(length)
    filled = 0
    with memoryview(data) as view:
        while filled < length:
            try:
                count = os.readv(fd, [view[filled:]])
            except ConnectionError:
                return None
            if not count:
                return None
            filled += count
    return data
