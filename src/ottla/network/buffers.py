"""Memory for frames that did not arrive in one piece: reused, and bounded in total.

What is counted is memory that is really taken. A buffer grows as the bytes of its frame
arrive, so a length alone takes almost nothing and keeps nobody else from sending.

A large buffer serves one frame. It is as large as the frame from the beginning, and the system
gives it memory when bytes arrive: to fill it with zeros, or to copy it when it grows, would hold
the loop.

The bound is queued.max.request.bytes. Kafka takes the whole announced length from it, and has no
bound without the setting (-1); here it is 512 MiB then. A frame that needs little may exceed
the bound by a quarter, so that a few large requests do not keep everybody else out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

from ottla.wire.discard import ONE_FRAME_BYTES

SMALLEST_BYTES: Final = 4096
LITTLE_BYTES: Final = 64 * 1024
"""A frame that needs no more than this is small."""
_KEPT_BYTES: Final = 16 * 1024 * 1024


class RequestBuffers:
    """Spare buffers by size class, retired ones, and the sum of what is reserved.

    A retired buffer holds frames that were handled. It becomes spare when the node has
    settled; until then somebody may still look at its bytes.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._little_limit_bytes = limit_bytes + limit_bytes // 4
        self._spare: dict[int, list[bytearray]] = {}
        self._spare_bytes = 0
        self._retired: list[bytearray] = []
        self.retired_bytes = 0
        self.reserved_bytes = 0

    def reserve(self, size: int, *, is_little: bool = False) -> bool:
        """Reserve `size` more bytes; False if that would exceed the limit."""
        limit_bytes = self._little_limit_bytes if is_little else self._limit_bytes
        if size > 0 and self.reserved_bytes + size > limit_bytes:
            return False
        self.reserved_bytes += size
        return True

    def exceed(self, size: int) -> None:
        """Reserve `size` more bytes, whatever the limit."""
        self.reserved_bytes += size

    def unreserve(self, size: int) -> None:
        self.reserved_bytes -= size

    def has_spare(self, size: int) -> bool:
        """Return whether there is a spare buffer of this size: taking it costs no memory."""
        return bool(self._spare.get(_capacity(size)))

    def take(self, size: int) -> bytearray:
        """Return a buffer with room for at least `size` bytes."""
        if size > ONE_FRAME_BYTES:
            buffer = bytearray()
            _resize()(buffer, size)
            return buffer
        capacity = _capacity(size)
        spare = self._spare.get(capacity)
        if spare:
            self._spare_bytes -= capacity
            return spare.pop()
        return bytearray(capacity)

    def give(self, buffer: bytearray) -> None:
        """Take back a buffer that nobody looks at any more."""
        capacity = len(buffer)
        if capacity <= ONE_FRAME_BYTES and self._spare_bytes + capacity <= _KEPT_BYTES:
            self._spare_bytes += capacity
            self._spare.setdefault(capacity, []).append(buffer)

    def retire(self, buffer: bytearray) -> None:
        """Take back a buffer whose bytes are needed until the node has settled."""
        self._retired.append(buffer)
        self.retired_bytes += len(buffer)

    def reuse_retired(self) -> None:
        """Make retired buffers spare: the node has settled."""
        for buffer in self._retired:
            self.give(buffer)
        self._retired.clear()
        self.retired_bytes = 0


def next_size(size: int, need: int) -> int:
    """Return the size of the buffer after one of `size` bytes, for a frame of `need` bytes."""
    return min(2 * size, need) if 2 * size <= ONE_FRAME_BYTES else need


@cache
def _resize() -> Callable[[bytearray, int], object]:
    """Return the function that makes a bytearray longer, and does not write to its new bytes."""
    import ctypes  # not before the first large frame: it takes time and memory

    function = ctypes.pythonapi.PyByteArray_Resize
    function.argtypes = (ctypes.py_object, ctypes.c_ssize_t)
    return function


def _capacity(size: int) -> int:
    """Return the size class: the next power of two."""
    return max(SMALLEST_BYTES, 1 << (size - 1).bit_length())
