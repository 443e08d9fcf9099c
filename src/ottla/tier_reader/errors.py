"""What may go wrong while remote segments are read."""

from __future__ import annotations


class TierError(Exception):
    """The remote tier cannot be read as asked; the text says why."""


class NoSuchTopic(TierError):
    """The store has nothing of this topic, or of several topics with this name."""


class MissingRecords(TierError):
    """Offsets in the middle of a partition are in no remote segment."""

    def __init__(self, partition: str, first_offset: int, last_offset: int) -> None:
        super().__init__(
            f"{partition}: offsets {first_offset} to {last_offset} are not in the tier"
        )
        self.first_offset = first_offset
        self.last_offset = last_offset


class DamagedObject(TierError):
    """An object does not have what it should have."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}")
        self.key = key
        self.reason = reason
