"""The part of a response that is here and not looked at yet, in memory that is used again.

A response may be much larger than the processor's caches. Received as a whole, its bytes have
left them before anyone looks; received a window at a time, the bytes that are checked and decoded
are those that have just been written, which takes a third less. Meanwhile the broker goes on
sending into the socket.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import numpy as np

from ottla.client.connection import OpenResponse
from ottla.client.deadline import Deadline
from ottla.ports import Buffer
from ottla.wire.codec import DecodeError
from pyspark_ottla.compiled import Bytes

WINDOW_BYTES: Final = 2 << 20
T = TypeVar("T")


class Window:
    """Bytes [start, end) of `data` are here; what is before `start` is gone with `receive`."""

    def __init__(self, size: int = WINDOW_BYTES) -> None:
        self._usual: Bytes = np.empty(size, np.uint8)
        self.data = self._usual
        self.start = self.end = 0
        self._response: OpenResponse | None = None
        self._deadline: Callable[[], Deadline]

    def open(self, response: OpenResponse, deadline: Callable[[], Deadline]) -> None:
        """Go through this response; each wait for bytes has a deadline of its own."""
        self.data = self._usual  # one that grew for a huge batch is let go
        self.start = self.end = 0
        self._response = response
        self._deadline = deadline

    def receive(self, needed: int = 0) -> None:
        """Receive until half of what is free is used and `needed` bytes are here, or all is."""
        assert self._response is not None
        here = self.end - self.start
        data = self.data if needed <= len(self.data) else np.empty(needed, np.uint8)
        data[:here] = self.data[self.start : self.end]
        self.data, self.start, self.end = data, 0, here
        wanted = max(needed, here + 1, (here + len(data)) // 2)
        deadline = self._deadline()
        while self.end < wanted and self._response.left:
            self.end += self._response.read_some(data[self.end :].data, deadline)

    def decode(self, decode: Callable[[Buffer, int, int], T]) -> T:
        """What stands at the start, received as far as that takes."""
        assert self._response is not None
        while True:
            try:
                return decode(self.data.data, self.start, self.end)
            except DecodeError as error:
                if not self._response.left:
                    raise self._response.not_understood(error) from None
            self.receive(2 * (self.end - self.start) if self._is_full else 0)

    @property
    def _is_full(self) -> bool:
        return self.end - self.start == len(self.data)
