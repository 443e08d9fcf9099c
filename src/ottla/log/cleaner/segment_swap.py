"""Put a cleaned segment in the place of those that it was made from.

    1. `<offset>.log.cleaned` and its indexes are written and forced to disk
    2. they are renamed to `.swap`: from now on the swap is completed, even after a crash
    3. the old segments are renamed to `.deleted`, and `.swap` is removed from the new names

These are Kafka's names and its order, so that Kafka completes or undoes what Ottla began, and the
other way round (`startup/leftover_files.py`). Steps 1 and 2 run off the loop, step 3 on it, because
readers must find the old segments or the new one.
"""

from __future__ import annotations

from collections.abc import Callable
from errno import EIO
from typing import TYPE_CHECKING, Final

from ottla.log.file_names import (
    CLEANED,
    INDEX,
    LOG,
    SEGMENT_SUFFIXES,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    offset_name,
)
from ottla.log.segment.segment import Segment
from ottla.log.truncation import discard_segment_files, discard_segments
from ottla.ports import File, Files

if TYPE_CHECKING:
    from ottla.log.log import Log

_SYNC_BYTES: Final = 16 * 1024 * 1024
"""Files are forced to disk in pieces of this size: other work in the background waits for it."""


class CleanedFiles:
    """The files of a segment that is being written.

    All methods run off the loop but `note` and `sync_later`.
    """

    def __init__(self, files: Files, directory: str, base_offset: int) -> None:
        self._files = files
        self._directory = directory
        self._base_offset = base_offset
        self._log: File | None = None
        self.size = self._synced = 0
        self._entries: dict[str, bytearray] = {
            INDEX: bytearray(),
            TIME_INDEX: bytearray(),
            TXN_INDEX: bytearray(),
        }

    def path(self, suffix: str, kind: str = CLEANED) -> str:
        """Return the path of one of the files, while it has this kind."""
        return f"{self._directory}/{offset_name(self._base_offset, suffix)}{kind}"

    def create(self) -> None:
        """Create the file of batches, and remove what an earlier clean has left."""
        for suffix in SEGMENT_SUFFIXES:
            self._files.unlink(self.path(suffix))
        self._log = self._files.open(self.path(LOG), create=True, writable=True)
        self._log.truncate(0)

    def append(self, batches: memoryview, *entries: memoryview) -> None:
        """Append batches, and entries of the three indexes."""
        assert self._log is not None
        self._log.pwritev([batches], self.size)
        self.note(len(batches), *entries)
        if self.is_sync_due:
            self.sync_later()()

    def note(self, size: int, *entries: memoryview) -> None:
        """Note that somebody else has appended batches; append entries of the three indexes.

        This takes no time. Nothing may be going on off the loop.
        """
        self.size += size
        for suffix, added in zip(self._entries, entries, strict=True):
            self._entries[suffix] += added

    @property
    def is_sync_due(self) -> bool:
        """Return True if so much was appended that it should be forced to disk."""
        return self.size - self._synced >= _SYNC_BYTES

    def sync_later(self) -> Callable[[], None]:
        """Return work that forces to disk what was appended, which takes less time at the end."""
        assert self._log is not None
        self._synced = self.size
        return self._log.sync

    def finish(self, last_time_entry: memoryview) -> None:
        """Force everything to disk."""
        assert self._log is not None
        self._log.sync()
        self._log.close()
        self._entries[TIME_INDEX] += last_time_entry
        for suffix, content in self._entries.items():
            if content or suffix != TXN_INDEX:
                self._write(suffix, bytes(content))

    def rename(self) -> None:
        """Rename everything to `.swap`: the swap will be completed from now on."""
        for suffix in SEGMENT_SUFFIXES:
            if suffix != TXN_INDEX or self._entries[TXN_INDEX]:
                self._files.rename(self.path(suffix), self.path(suffix, SWAP))
        self._files.sync_dir(self._directory)

    def _write(self, suffix: str, content: bytes) -> None:
        file = self._files.open(self.path(suffix), create=True, writable=True)
        file.truncate(0)
        if content:
            file.pwritev([content], 0)
        file.sync()
        file.close()

    def remove(self) -> None:
        """Remove the files of a clean that is given up."""
        if self._log is not None:
            self._log.close()
        for kind in (CLEANED, SWAP):
            for suffix in SEGMENT_SUFFIXES:
                self._files.unlink(self.path(suffix, kind))


def swap_in(log: Log, old: list[Segment], cleaned: CleanedFiles) -> Segment:
    """Replace segments of a log by one whose files are called `.swap`; on the loop.

    If that fails in the middle, the log must not be used any more: the next start completes it.
    """
    first = old[0]
    new = Segment(log.resources.pool, log.directory, first.base_offset, cleaned.size)
    files = log.resources.files
    try:
        discard_segment_files(log, first)
        discard_segments(log, old[1:])
        for suffix in SEGMENT_SUFFIXES:
            try:
                files.rename(cleaned.path(suffix, SWAP), new.path(suffix))
            except FileNotFoundError:
                if suffix != TXN_INDEX:
                    raise
    except OSError as error:
        raise OSError(
            EIO, f"the swap of a cleaned segment failed: {error}", log.directory
        ) from error
    log.segments.replace(old, new)
    return new
