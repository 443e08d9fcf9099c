"""Keeping __consumer_offsets small without a log cleaner.

Each commit is one more record, and only the last one of each key matters. When a shard's log
holds much more than that, the live state is written anew at its end, a piece at a time while
commits go on, and then the log begins where that began: every key that lives has a record
from there on, either rewritten or newer. A crash at any point leaves a log that says the same.

Records are written as the log has them, not replayed: what a rebalance has changed in memory
is not in them. Offsets pending in open transactions would be lost, so the log keeps its
beginning as long as there are any.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from ottla.coordinator.groups.group_shard import GroupShard
from ottla.coordinator.groups.record_serde import GroupRecord
from ottla.coordinator.runtime.shard_runtime import RuntimeState, ShardRuntime

SMALL_BYTES: Final = 16 * 1024 * 1024
"""A log below this size is left alone."""

RATIO: Final = 4
"""How many records there may be for each that matters."""

_RECORDS_AT_A_TIME: Final = 500


def is_overgrown(runtime: ShardRuntime, small_bytes: int = SMALL_BYTES) -> bool:
    """Whether most of a shard's log is of no use any more."""
    log = runtime.partition.log
    if log is None or runtime.state is not RuntimeState.ACTIVE:
        return False
    shard = runtime.shard
    live = max(shard.offsets.count + len(shard.groups), runtime.rewritten)
    return (
        log.log_end_offset - log.log_start_offset > RATIO * live
        and log.size > small_bytes
        and not shard.offsets.has_pending
    )


class Rewriting:
    """One rewriting of a shard; call `step` until it says that it is over."""

    def __init__(self, runtime: ShardRuntime) -> None:
        self._runtime = runtime
        self._start_offset: int | None = None
        self._written = 0
        self._rest: Iterator[GroupRecord] | None = None

    def step(self) -> bool:
        """Do some more; whether it is over, for good or because the shard is. OSError."""
        runtime = self._runtime
        log = runtime.partition.log
        if log is None or runtime.state is not RuntimeState.ACTIVE:
            return True
        if log.uncommitted:
            return False  # a segment begins only between two commits
        if self._rest is None:
            log.roll(runtime.shard.broker.wall_ms)
            self._start_offset = log.log_end_offset
            self._rest = _live_records(runtime.shard)
        if self._write_some(self._rest) or not runtime.is_settled:
            return False
        if not runtime.shard.offsets.has_pending:
            assert self._start_offset is not None
            log.advance_log_start(self._start_offset)
            log.delete_old_segments(runtime.shard.broker.wall_ms)
        runtime.rewritten = self._written
        return True

    def _write_some(self, rest: Iterator[GroupRecord]) -> bool:
        """Whether there was anything left to write."""
        records = list(islice(rest, _RECORDS_AT_A_TIME))
        self._written += len(records)
        self._runtime.rewrite(records)
        return bool(records)


def _live_records(shard: GroupShard) -> Iterator[GroupRecord]:
    """All that a shard holds in the log, looked up as late as possible.

    The shard may change between two records: what is added meanwhile has a record of its own.
    """
    for group_id in list(shard.groups):
        group = shard.groups.get(group_id)
        if group is not None:
            yield from group.stored_records()
        for key in [key for key, _ in shard.offsets.of(group_id)]:
            value = shard.offsets.get(key.group, key.topic, key.partition)
            if value is not None:
                yield key, value
