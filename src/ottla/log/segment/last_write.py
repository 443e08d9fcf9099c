"""The bytes of a log's last write, kept while somebody waits for them.

Followers and consumers that wait at the end of a log read what was just written. From memory that
takes no look at the recent batches and no system call. Only small writes are kept, and few of
them, however many logs there are.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.log.segment.active_segment import ActiveSegment

MOST_KEPT_BYTES: Final = 4096
"""The largest write that is kept."""
MOST_KEPT: Final = 64
"""How many are kept at the most, of all logs of a broker."""


class LastWrite:
    """The batches of one write. They begin at `offset`, and end where the log's written end was."""

    __slots__ = ("_owner", "content", "length", "offset")

    def __init__(self, owner: ActiveSegment, offset: int, content: bytes) -> None:
        self._owner = owner
        self.offset = offset
        self.content = content
        self.length = len(content)

    def forget(self) -> None:
        """Have the log read these batches from its file."""
        if self._owner.last_write is self:
            self._owner.last_write = None


class LastWrites:
    """Those of all logs, oldest first."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: deque[LastWrite] = deque()

    def keep(self, owner: ActiveSegment, offset: int, content: bytes) -> LastWrite:
        """Return a write that is kept until there are too many."""
        write = LastWrite(owner, offset, content)
        kept = self._kept
        kept.append(write)
        if len(kept) > MOST_KEPT:
            kept.popleft().forget()
        return write
