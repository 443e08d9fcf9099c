"""Have the logs of shards cleaned before they get too large to load quickly.

The log cleaner cleans a compacted log when a segment is full (offsets.topic.segment.bytes, 100 MiB)
and half of the log is dirty. A start reads the logs of all shards, so that would be much to read.
So this module asks for a clean earlier: when the dirty part of a log, or of all logs together, is
larger than some megabytes, and larger than the clean part. Then the active segment ends, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.coordinator.runtime.broker import Broker
from ottla.coordinator.runtime.shard_runtime import RuntimeState, ShardRuntime
from ottla.log.log import Log

SMALL_BYTES: Final = 16 * 1024 * 1024
"""A dirty part up to this size is not cleaned early, unless all together are too large."""

TOTAL_BYTES: Final = 16 * 1024 * 1024
"""What the dirty parts of all logs may have together."""

TINY_BYTES: Final = 64 * 1024
"""A dirty part up to this size is never cleaned early."""

_CHECK_INTERVAL_MS: Final = 5000
_BUSY_CHECK_INTERVAL_MS: Final = 1000
"""The same once the dirty parts have half of what they may have together."""


class LogGrowth:
    """Looks at the logs of shards from time to time, and asks for cleans."""

    def __init__(self, broker: Broker, runtimes: Mapping[int, ShardRuntime[Any]]) -> None:
        self._broker = broker
        self._runtimes = runtimes
        self._after(_CHECK_INTERVAL_MS, self._check)

    def _check(self) -> None:
        logs = [log for log in map(_log_of, self._runtimes.values()) if log is not None]
        sizes = {log: dirty_bytes(log) for log in logs}
        total = sum(sizes.values())
        limit = TINY_BYTES if total > TOTAL_BYTES else SMALL_BYTES
        for log, size in sorted(sizes.items(), key=lambda item: item[1], reverse=True):
            if size <= limit:
                break
            if size > log.size - size:
                self._broker.clean_log(log)
        is_busy = total > TOTAL_BYTES // 2
        self._after(_BUSY_CHECK_INTERVAL_MS if is_busy else _CHECK_INTERVAL_MS, self._check)

    def _after(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._broker.timers.at(self._broker.monotonic_ms + delay_ms, action)


def dirty_bytes(log: Log) -> int:
    """Return the size of the part of a log that was not cleaned yet."""
    return sum(segment.size for segment in log.segments.from_offset(log.cleaned_upto))


def log_size(runtime: ShardRuntime[Any]) -> int:
    """Return the size of a shard's log in bytes."""
    log = runtime.partition.log
    return 0 if log is None else log.size


def _log_of(runtime: ShardRuntime[Any]) -> Log | None:
    return runtime.partition.log if runtime.state is RuntimeState.ACTIVE else None
