"""What happened in a run: every line goes into a hash, the last ones are kept for a report."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

_KEPT_LINES: Final = 60


class Trace:
    """Two runs with equal hashes did the same in the same order."""

    def __init__(self, sink: Callable[[str], None] | None = None) -> None:
        self._hash = blake2b(digest_size=8)
        self._sink = sink
        self.lines: deque[str] = deque(maxlen=_KEPT_LINES)

    def note(self, time_ms: float, text: str) -> None:
        """Write down one thing that happened."""
        line = f"{time_ms:10.1f} {text}"
        self._hash.update(line.encode())
        self.lines.append(line)
        if self._sink is not None:
            self._sink(line)

    def digest(self, data: bytes) -> None:
        """Take bytes into the hash that would be too long for a line."""
        self._hash.update(data)

    @property
    def hash(self) -> str:
        return self._hash.hexdigest()
