"""Keeping the logs of shards small while there is no log cleaner.

Only the last record of each key counts. When a log holds many more records than its shard
needs, the live state is written again at the end of the log, in slices while requests go on.
Then the log start offset moves to where that began: from there on every live key has a record,
either the rewritten one or a newer one. A crash at any point leaves a log with the same state.

Records are written as the log has them and not replayed, so nothing that exists in memory only
gets into the log. Records of open transactions would be lost, so the log start offset does not
move while there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final

from ottla.coordinator.runtime.broker import Broker
from ottla.coordinator.runtime.record import CoordinatorRecord
from ottla.coordinator.runtime.shard_runtime import RuntimeState, ShardRuntime

SMALL_BYTES: Final = 16 * 1024 * 1024
"""Logs below this size are not compacted."""

RATIO: Final = 4
"""How many records a log may have for each one that counts."""

_RECORDS_PER_STEP: Final = 500
_CHECK_INTERVAL_MS: Final = 5000
_STEP_PAUSE_MS: Final = 5


def is_overgrown(runtime: ShardRuntime[Any], small_bytes: int = SMALL_BYTES) -> bool:
    """Return True if most of a shard's log is no longer needed."""
    log = runtime.partition.log
    if log is None or runtime.state is not RuntimeState.ACTIVE:
        return False
    live = max(runtime.shard.live_count, runtime.compacted_count)
    return (
        log.log_end_offset - log.log_start_offset > RATIO * live
        and log.size > small_bytes
        and not runtime.shard.has_open_transactions
    )


class LogCompaction:
    """One compaction of a shard's log. Call `step` until it returns True."""

    def __init__(self, runtime: ShardRuntime[Any]) -> None:
        self.runtime = runtime
        self._start_offset: int | None = None
        self._written = 0
        self._rest: Iterator[CoordinatorRecord] | None = None

    def step(self) -> bool:
        """Write a slice. Return True if the compaction is done, or the shard closed.

        Raise OSError if the log fails.
        """
        runtime, wall_ms = self.runtime, self.runtime.shard.broker.wall_ms
        log = runtime.partition.log
        if log is None or runtime.state is not RuntimeState.ACTIVE:
            return True
        if log.has_queued:
            return False  # a segment can only begin when nothing is queued
        if self._rest is None:
            log.roll(wall_ms)
            self._start_offset = log.log_end_offset
            self._rest = runtime.shard.live_records()
        if self._write_some(self._rest) or not runtime.is_settled:
            return False
        if not runtime.shard.has_open_transactions:
            assert self._start_offset is not None
            log.advance_log_start(self._start_offset)
            log.delete_old_segments(wall_ms)
        runtime.compacted_count = self._written
        return True

    def _write_some(self, rest: Iterator[CoordinatorRecord]) -> bool:
        """Write the next records, and return True if there were any."""
        records = list(islice(rest, _RECORDS_PER_STEP))
        self._written += len(records)
        self.runtime.rewrite(records)
        return bool(records)


class CompactionSchedule:
    """Looks for overgrown logs from time to time, and compacts one after the other."""

    def __init__(self, broker: Broker, runtimes: Mapping[int, ShardRuntime[Any]]) -> None:
        self._broker = broker
        self._runtimes = runtimes
        self._after(_CHECK_INTERVAL_MS, self._check)

    def _check(self) -> None:
        overgrown = next((r for r in self._runtimes.values() if is_overgrown(r)), None)
        if overgrown is None:
            self._after(_CHECK_INTERVAL_MS, self._check)
        else:
            self._step(LogCompaction(overgrown))

    def _step(self, compaction: LogCompaction) -> None:
        try:
            is_done = compaction.step()
        except OSError as error:
            self._broker.storage_failed(compaction.runtime.partition, error)
            is_done = True
        if is_done:
            self._after(_CHECK_INTERVAL_MS, self._check)
        else:
            self._after(_STEP_PAUSE_MS, partial(self._step, compaction))

    def _after(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._broker.timers.at(self._broker.monotonic_ms + delay_ms, action)
