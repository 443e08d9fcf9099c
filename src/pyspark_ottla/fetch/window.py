"""The receive buffer of a response. It is reused for every part of every response.

A response may be much larger than the CPU caches. If it were received as a whole, its bytes
would have left the caches before they are decoded. A window at a time, the bytes that are checked
and decoded are the ones just received, which takes a third less CPU. Meanwhile the broker keeps
sending into the socket (docs/adr/0009).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import numpy as np

from ottla.client.connection import OpenResponse
from ottla.client.deadline import Deadline
from ottla.ports import Buffer
from ottla.wire.codec import DecodeError
from pyspark_ottla.jit import Bytes

WINDOW_BYTES: Final = 2 << 20
T = TypeVar("T")


class Window:
    """Bytes [start, end) of `data` are received and not used yet.

    `receive` overwrites the bytes before `start`.
    """

    def __init__(self, size: int = WINDOW_BYTES) -> None:
        self._usual: Bytes = np.empty(size, np.uint8)
        self.data = self._usual
        self.start = self.end = 0
        self._response: OpenResponse | None = None
        self._deadline: Callable[[], Deadline]

    def open(self, response: OpenResponse, deadline: Callable[[], Deadline]) -> None:
        """Start a response. `deadline` makes the deadline of each `receive`."""
        self.data = self._usual  # drop an array that was made for a huge batch
        self.start = self.end = 0
        self._response = response
        self._deadline = deadline

    def receive(self, needed: int = 0) -> None:
        """Receive until half of the free space is used and `needed` bytes are here.

        Stop at the end of the response. Grow if `needed` is more than the window holds.
        """
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
        """Decode what begins at `start`. Receive more bytes until there are enough for it."""
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
