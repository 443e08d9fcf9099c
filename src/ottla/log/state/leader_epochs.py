"""The leader epoch in which each part of a log was written (KIP-101, KIP-279).

Entries (epoch, start offset) rise strictly in both. They are a tuple that is replaced, never
changed, so undoing a failed append puts the old tuple back. On disk they are in
`leader-epoch-checkpoint`. The file may be older than the log: recovery reads the epochs of
unflushed batches from the batches, and a flush writes the file before the recovery point moves.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.log.store.checkpoints import CorruptCheckpoint, decode_lines, encode_lines
from ottla.model.ids import NO_LEADER_EPOCH, NO_OFFSET


class EpochEntry(NamedTuple):
    """A leader epoch and the first offset written in it."""

    epoch: int
    start_offset: int


class EpochCache:
    """The leader epochs of one log."""

    __slots__ = ("_before_queued", "changed", "entries", "has_queued", "latest_epoch")

    def __init__(self, entries: tuple[EpochEntry, ...] = ()) -> None:
        self.entries = entries
        self.latest_epoch = entries[-1].epoch if entries else NO_LEADER_EPOCH
        self.changed = False
        """True if the entries differ from those that were last written to the file."""
        self._before_queued = entries
        self.has_queued = False
        """True if an epoch has begun with a batch that is not written yet."""

    def load(self, content: bytes) -> None:
        """Load the entries of a checkpoint; raise CorruptCheckpoint and change nothing."""
        self.replace(EpochCache.decode(content).entries)
        self.changed = False

    def begin(self, epoch: int, start_offset: int) -> None:
        """Begin an epoch with a queued batch; `undo_queued` takes it back until it is written."""
        if epoch < 0:
            return
        if not self.has_queued:
            self._before_queued = self.entries
            self.has_queued = True
        self.assign(epoch, start_offset)

    def mark_written(self) -> None:
        """Keep the epochs that have begun so far: their batches are written."""
        self.has_queued = False

    def undo_queued(self) -> None:
        """Take back the epochs that have begun since the last `mark_written`."""
        if self.has_queued:
            self.replace(self._before_queued)
            self.has_queued = False

    def mark_saved(self) -> None:
        """Remember that the file has the present entries."""
        self.changed = False

    def mark_unsaved(self) -> None:
        """Remember that the file may lack the present entries."""
        self.changed = True

    def assign(self, epoch: int, start_offset: int) -> None:
        """Begin an epoch at an offset, and remove entries that contradict it."""
        last = self.entries[-1] if self.entries else None
        if last is not None and last.epoch == epoch and start_offset >= last.start_offset:
            return
        kept = tuple(e for e in self.entries if e.epoch < epoch and e.start_offset < start_offset)
        self.replace((*kept, EpochEntry(epoch, start_offset)))

    def replace(self, entries: tuple[EpochEntry, ...]) -> None:
        """Replace all entries."""
        self.entries = entries
        self.latest_epoch = entries[-1].epoch if entries else NO_LEADER_EPOCH
        self.changed = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest epoch up to `epoch` and where it ended; (-1, -1) if unknown."""
        if not self.entries or epoch == NO_LEADER_EPOCH or epoch > self.latest_epoch:
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        found = epoch
        for entry in self.entries:
            if entry.epoch > epoch:
                return found, entry.start_offset
            found = entry.epoch
        raise AssertionError("an epoch below the latest has one above it")

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch in which an offset was written, -1 if unknown."""
        found = NO_LEADER_EPOCH
        for entry in self.entries:
            if entry.start_offset > offset:
                break
            found = entry.epoch
        return found

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget the epochs that begin at or after `end_offset`."""
        if self.entries and self.entries[-1].start_offset >= end_offset:
            self.replace(tuple(e for e in self.entries if e.start_offset < end_offset))

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget the epochs that ended before an offset; the one that contains it begins there."""
        before = [e for e in self.entries if e.start_offset <= start_offset]
        if before and before != [(before[-1].epoch, start_offset)]:
            rest = self.entries[len(before) :]
            self.replace((EpochEntry(before[-1].epoch, start_offset), *rest))

    def encode(self) -> bytes:
        """Return the content of leader-epoch-checkpoint."""
        return encode_lines([f"{e.epoch} {e.start_offset}" for e in self.entries])

    @classmethod
    def decode(cls, content: bytes) -> EpochCache:
        """Return the cache with a checkpoint's entries; raise CorruptCheckpoint."""
        cache = cls()
        for fields in decode_lines(content):
            try:
                epoch, start_offset = map(int, fields)
            except ValueError:
                raise CorruptCheckpoint(f"not an epoch and an offset: {' '.join(fields)}") from None
            cache.assign(epoch, start_offset)
        cache.changed = False
        return cache
