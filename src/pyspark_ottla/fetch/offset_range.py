"""A range of offsets to read. It is small, so that it can be sent to executors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OffsetRange:
    """The offsets [start, end) of one partition. `topic_id` is ZERO_UUID if it is unknown."""

    topic: str
    topic_id: bytes
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"
