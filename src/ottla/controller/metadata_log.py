"""The metadata log on disk: groups of batches, forced to disk off the loop, and read at start.

One group is written at a time. Its batches go to the file with one call, a background job
forces them to disk, then the caller is told. If that fails, the caller cuts the log back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ottla.config.definition import MAX_INT, MAX_LONG
from ottla.config.topic import LogConfig
from ottla.log.log import Log
from ottla.log.scan import check_crc
from ottla.metadata.serde import MetadataError
from ottla.records.batch import Batch, CorruptBatch, scan

METADATA_LOG_CONFIG = LogConfig(
    flush_messages=1,
    max_message_bytes=MAX_INT,
    message_timestamp_after_max_ms=MAX_LONG,
    message_timestamp_before_max_ms=MAX_LONG,
    retention_bytes=-1,
    retention_ms=-1,
)
"""What was recovered at start is forced to disk before it counts (`flush_messages`)."""

_READ_BYTES = 1024 * 1024


class MetadataLog:
    """Writes groups of batches to the metadata log."""

    def __init__(self, log: Log) -> None:
        self.log = log
        # From here on this class forces each group to disk, off the loop.
        log.reconfigure(log.config._replace(flush_messages=MAX_LONG))
        log.on_flush = self._flushed
        self._done: Callable[[OSError | None], None] | None = None
        self._is_appending = False
        self._error: OSError | None = None

    def write(
        self,
        batches: Sequence[bytearray],
        epoch: int,
        now_ms: int,
        done: Callable[[OSError | None], None],
    ) -> None:
        """Write a group; `done` is told when it is on disk, or why not. One group at a time."""
        assert self._done is None, "a group is being written"
        self._done, self._error = done, None
        try:
            self._append(batches, epoch, now_ms)
            if self._error is not None:
                raise self._error
            self.log.start_flush()
        except OSError as error:
            self._finish(error)

    def write_now(self, batches: Sequence[bytearray], epoch: int, now_ms: int) -> None:
        """Write a group and wait for the disk; only while nothing is served."""
        self._append(batches, epoch, now_ms)
        self.log.flush()

    def _append(self, batches: Sequence[bytearray], epoch: int, now_ms: int) -> None:
        self._is_appending = True
        try:
            for batch in batches:
                self.log.append(batch, memoryview(batch), 0, len(batch), epoch, now_ms, is_own=True)
            self.log.commit()
        finally:
            self._is_appending = False

    def _flushed(self, error: OSError | None) -> None:
        """Take the result of a flush in the background, ours or that of a finished segment."""
        if self._done is not None and not self._is_appending:
            self._finish(error)
        elif error is not None:
            self._error = error  # of the segment that this group has finished
            self.log.resources.notes.append(f"{self.log.directory}: cannot be flushed: {error}")

    def _finish(self, error: OSError | None) -> None:
        done, self._done = self._done, None
        assert done is not None
        done(error)

    def cut_back(self, offset: int) -> bool:
        """Remove everything from an offset on; False if the log cannot be used any more."""
        try:
            self.log.truncate_to(offset)
        except OSError:
            # A cut that is made but not forced to disk is covered by the next write that is.
            return self.log.log_end_offset == offset
        return True

    def batches(self, offset: int) -> Iterator[tuple[Batch, bytes]]:
        """Return the batches from an offset on with their bytes; MetadataError at damage.

        A part of the log is in memory at a time. OSError when it cannot be read.
        """
        log = self.log
        while offset < log.log_end_offset:
            piece = log.read(offset, _READ_BYTES, log.log_end_offset, at_least_one=True)
            if piece is None:
                raise MetadataError(f"the metadata log ends at {offset}, not {log.log_end_offset}")
            data = piece.file.pread(piece.length, piece.position)
            try:
                for batch in scan(data, 0, len(data)):
                    check_crc(data, batch, batch.position)
                    if batch.base_offset > offset:
                        raise MetadataError(
                            f"{log.directory}: offsets {offset} to {batch.base_offset - 1}"
                            " are missing"
                        )
                    offset = batch.next_offset
                    yield batch, data[batch.position : batch.position + batch.size]
            except CorruptBatch as error:
                raise MetadataError(
                    f"{log.directory}: the metadata log is damaged after offset {offset}:"
                    f" {error.reason}. Restore the directory from a copy"
                ) from error
