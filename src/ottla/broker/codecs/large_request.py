"""Says that a request is not for a codec written by hand: it names very many partitions.

Such a request is decoded by its schema, in slices (`ottla.broker.pipeline`), and handled by the
function `handle_large` of its API.
"""

from __future__ import annotations

from typing import Final

from ottla.wire.primitives import DecodeError

MOST_PARTITIONS: Final = 500
"""How many partitions are handled in one go. Each costs a few microseconds."""


class LargeRequest(Exception):
    """The request names too many partitions, or one of them twice."""


def large_request(count: int, smallest_bytes: int, left_bytes: int) -> Exception:
    """Return the error for a list with this many items: DecodeError if they do not fit."""
    if (count - 1) * smallest_bytes > left_bytes:
        return DecodeError(f"a list has {count - 1} items in {left_bytes} bytes")
    return LargeRequest()
