"""Connections whose peers do not take their replies: the memory that they hold, bounded in total.

One connection holds little (`LARGE_REPLY_BYTES`), but there may be thousands. When all of them
together hold too much memory, or too many files that `sendfile` still reads from, those are closed
that have been slow for the longest time. Everybody else is served meanwhile. A reader that takes
its replies, however large they are, is never slow for long.

Kafka has no such bound: each connection may hold one response.
"""

from __future__ import annotations

from typing import Final

from ottla.network.channel import Channel

MOST_UNSENT_BYTES: Final = 256 * 1024 * 1024
MOST_UNSENT_RANGES: Final = 4096


class SlowReaders:
    """Channels with replies that could not be sent yet. The one that is slow for longest is first.

    `held_bytes` is the memory of their replies. `held_ranges` is how many ranges of files these
    have; each range keeps its file open.
    """

    def __init__(self, most_bytes: int, most_ranges: int) -> None:
        self._most_bytes = most_bytes
        self._most_ranges = most_ranges
        self._held: dict[Channel, tuple[int, int]] = {}
        self.held_bytes = 0
        self.held_ranges = 0

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, channel: Channel) -> bool:
        return channel in self._held

    def add(self, channel: Channel) -> None:
        """Count what a channel holds now. It keeps its place if it is slow already."""
        held_bytes, held_ranges = held = channel.held()
        old_bytes, old_ranges = self._held.get(channel, (0, 0))
        self._held[channel] = held
        self.held_bytes += held_bytes - old_bytes
        self.held_ranges += held_ranges - old_ranges

    def remove(self, channel: Channel) -> None:
        """Forget a channel: its replies were sent, or it is closed."""
        held_bytes, held_ranges = self._held.pop(channel, (0, 0))
        self.held_bytes -= held_bytes
        self.held_ranges -= held_ranges

    def to_close(self) -> Channel | None:
        """Return the channel to close, None while all together do not hold too much."""
        too_many_bytes = self.held_bytes > self._most_bytes
        too_many_ranges = self.held_ranges > self._most_ranges
        if not (too_many_bytes or too_many_ranges):
            return None
        for channel, (held_bytes, held_ranges) in self._held.items():
            if (too_many_bytes and held_bytes) or (too_many_ranges and held_ranges):
                return channel
        return None
