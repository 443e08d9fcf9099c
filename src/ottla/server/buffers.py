"""Memory for requests that did not arrive in one piece: reused, and bounded in sum.

What is counted is memory that is really taken: a buffer grows as the bytes of its frame
arrive, so a length alone takes nearly nothing and keeps nobody else from sending.
"""

from __future__ import annotations

_SMALLEST = 4096
_KEPT_BYTES = 16 * 1024 * 1024


class RequestBuffers:
    """Spare buffers by size class, and the sum of what is reserved."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._spare: dict[int, list[bytearray]] = {}
        self._spare_bytes = 0
        self.reserved_bytes = 0

    def reserve(self, size: int) -> bool:
        """Whether so much more memory may be taken now; then it counts."""
        if size > 0 and self.reserved_bytes + size > self._limit_bytes:
            return False
        self.reserved_bytes += size
        return True

    def exceed(self, size: int) -> None:
        """Take so much more whatever the limit."""
        self.reserved_bytes += size

    def unreserve(self, size: int) -> None:
        self.reserved_bytes -= size

    def has_spare(self, size: int) -> bool:
        """Whether a buffer of this size is there already: taking it costs no memory."""
        return bool(self._spare.get(_capacity(size)))

    def take(self, size: int) -> bytearray:
        """A buffer with room for at least `size` bytes."""
        capacity = _capacity(size)
        spare = self._spare.get(capacity)
        if spare:
            self._spare_bytes -= capacity
            return spare.pop()
        return bytearray(capacity)

    def give(self, buffer: bytearray) -> None:
        """Return a buffer nobody looks at any more."""
        capacity = len(buffer)
        if self._spare_bytes + capacity <= _KEPT_BYTES:
            self._spare_bytes += capacity
            self._spare.setdefault(capacity, []).append(buffer)


def _capacity(size: int) -> int:
    """The size class: the next power of two."""
    return max(_SMALLEST, 1 << (size - 1).bit_length())
