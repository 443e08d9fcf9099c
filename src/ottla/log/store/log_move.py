"""A log that moves to another log directory of its broker (KIP-113).

Its records are copied to a *future* log in the other directory, whose name ends in `-future`, up to
the high watermark: these are never cut off again. When it has them all, the rest is copied at once,
and the future log takes the place of the present one. A crash in between leaves a future log
behind: `inventory` puts it in its place if the present one is gone, else it begins again.
"""

from __future__ import annotations

from typing import Final

from ottla.log.file_names import FUTURE_DIR, retired_directory
from ottla.log.log import Log
from ottla.log.startup.open_log import create_log
from ottla.log.store.log_store import LogStore

MOST_AT_ONCE: Final = 4 * 1024 * 1024
"""If there are more bytes than this after the high watermark, the move waits to complete."""


class LogMove:
    """The move of one log. OSError leaves its methods if a disk fails."""

    def __init__(self, store: LogStore, log: Log, target: str) -> None:
        self._store = store
        self.log = log
        self.target = target
        name = retired_directory(log.topic_partition, store.resources.random.uuid(), FUTURE_DIR)
        path = f"{target}/{name}"
        self.future = create_log(
            store.resources, path, log.topic_partition, log.topic_id, log.config
        )

    @property
    def lag(self) -> int:
        """How many offsets are still to be copied."""
        return max(0, self.log.log_end_offset - self.future.log_end_offset)

    @property
    def is_caught_up(self) -> bool:
        """True if everything that is committed is copied."""
        return self.future.log_end_offset >= self.log.high_watermark

    def copy(self, max_bytes: int, now_ms: int) -> int:
        """Copy committed records; return the bytes of them."""
        return self._copy(self.log.high_watermark, max_bytes, now_ms)

    def _copy(self, upto: int, max_bytes: int, now_ms: int) -> int:
        log, future = self.log, self.future
        if future.log_end_offset < log.log_start_offset or self._has_diverged():
            future.truncate_fully(log.log_start_offset)
        if future.log_end_offset >= upto:
            return 0
        piece = log.read(future.log_end_offset, max_bytes, upto, at_least_one=True)
        if piece is None:
            return 0
        data = bytearray(piece.file.pread(piece.length, piece.position))
        size = future.append_as_follower(data, memoryview(data), 0, len(data), now_ms)
        future.write_queued()
        return size

    def _has_diverged(self) -> bool:
        """Return True if the log was cut off below what is copied: by an unclean election."""
        log, future = self.log, self.future
        if future.log_end_offset > log.log_end_offset:
            return True
        epoch = future.leader_epochs.latest_epoch
        return epoch >= 0 and log.end_offset_for_epoch(epoch)[1] < future.log_end_offset

    def complete(self, now_ms: int) -> Log | None:
        """Let the future log take the place of the present one, and return it; None if not yet.

        Nothing may be queued in the present log.
        """
        log, future, store = self.log, self.future, self._store
        if log.has_queued or not self.is_caught_up:
            return None
        if log.bytes_available(future.log_end_offset, log.written_end) > MOST_AT_ONCE:
            return None
        while self._copy(log.written_end, MOST_AT_ONCE, now_ms):
            pass
        if future.log_end_offset != log.written_end:
            return None
        future.advance_log_start(log.log_start_offset)
        future.high_watermark = log.high_watermark
        future.close()
        return store.replace(log, future, f"{self.target}/{log.topic_partition}")

    def abandon(self) -> None:
        """Give up the move: delete what was copied."""
        self._store.discard(self.future)
