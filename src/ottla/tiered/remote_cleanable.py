"""Which part of a tiered, compacted log can be cleaned in the remote tier, and is it due?

    log start      first dirty offset        end of the remote part       local first dirty offset
        |  remote segments  |   remote segments       |      local segments       |
                            |   keys are collected from here to there             |

A remote segment says up to which offset it is clean: none of its records has a key that a later
record below this offset has as well. The least of them is where the dirty part begins. A clean
collects the keys of the dirty part, and rewrites the remote segments from the oldest on. As in the
local cleaner (`log/cleaner/cleanable.py`), it is due when the dirty part is a larger fraction of
both parts than min.cleanable.dirty.ratio, or when a record in it is older than
max.compaction.lag.ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.config.definition import MAX_LONG
from ottla.log.cleaner.cleanable import first_dirty_offset, first_timestamp
from ottla.log.cleaner.segment_groups import GroupLimits, SegmentSizes, group_sizes
from ottla.log.log import Log
from ottla.tiered.metadata_records import UNKNOWN, SegmentMetadata, SegmentState
from ottla.tiered.remote_segments import RemoteSegments


class RemotePart(NamedTuple):
    """A remote segment, and the offsets that are read from it: the first, and the end."""

    segment: SegmentMetadata
    first_offset: int
    end_offset: int

    @property
    def clean_upto(self) -> int:
        """Up to where it is clean. Keys before its own records do not matter."""
        return max(self.segment.clean_upto, self.first_offset)


class RemoteCleanable(NamedTuple):
    """What can be cleaned of the remote part of a log."""

    parts: list[RemotePart]
    first_dirty_offset: int
    end_offset: int
    """Up to where keys can be collected."""
    clean_bytes: int
    dirty_bytes: int
    oldest_ms: int
    """A timestamp of the first dirty segment."""

    @property
    def total_bytes(self) -> int:
        return self.clean_bytes + self.dirty_bytes

    def is_due(self, log: Log, now_ms: int) -> bool:
        """Return True if it is to be cleaned now."""
        if not self.dirty_bytes:
            return False
        if self.oldest_ms < now_ms - log.config.max_compaction_lag_ms:
            return True
        return self.dirty_bytes / self.total_bytes > log.config.min_cleanable_dirty_ratio


def remote_parts(log: Log, segments: RemoteSegments) -> list[RemotePart]:
    """Return the remote part of a log, one segment after the other, the first one as a whole."""
    found = segments.parts(
        log.log_start_offset, log.leader_epochs, log.written_end, has_gaps=log.config.compacts
    )
    parts = [RemotePart(*each) for each in found]
    if parts:
        parts[0] = parts[0]._replace(first_offset=parts[0].segment.start_offset)
    return parts


def clean_offset(parts: Sequence[RemotePart], highest_remote_offset: int) -> int:
    """Return the offset below which deletions are not needed any more, in no copy of the log.

    A tombstone before it is in the remote part, and so is everything that it deletes. All remote
    segments were cleaned with it, and what is copied later comes after it.
    """
    if not parts:
        return highest_remote_offset + 1
    if parts[-1].end_offset <= highest_remote_offset:
        return 0  # something is missing in between
    return min(highest_remote_offset + 1, *(part.clean_upto for part in parts))


def remote_cleanable(log: Log, segments: RemoteSegments, now_ms: int) -> RemoteCleanable | None:
    """Return what can be cleaned remotely; None if the remote part is clean, or empty."""
    parts = remote_parts(log, segments)
    if not parts:
        return None
    first_dirty = min(part.clean_upto for part in parts)
    end_offset = _end_offset(log, parts, now_ms)
    if first_dirty >= end_offset:
        return None
    remote_end = parts[-1].end_offset
    remote_dirty = [part for part in parts if part.end_offset > first_dirty]
    ends = [*log.segments.base_offsets[1:], log.log_end_offset]
    local_dirty = [
        segment
        for segment, end in zip(log.segments, ends, strict=True)
        if end > max(remote_end, first_dirty) and segment.base_offset < end_offset and segment.size
    ]
    if remote_dirty:
        oldest_ms = remote_dirty[0].segment.max_timestamp_ms
    elif local_dirty and log.config.max_compaction_lag_ms < MAX_LONG:
        oldest_ms = first_timestamp(local_dirty[0])
    else:
        oldest_ms = MAX_LONG
    sizes = sum(part.segment.size for part in parts)
    dirty = sum(part.segment.size for part in remote_dirty)
    return RemoteCleanable(
        parts,
        first_dirty,
        end_offset,
        sizes - dirty,
        dirty + sum(segment.size for segment in local_dirty),
        oldest_ms,
    )


def remote_first_dirty_offset(log: Log, segments: RemoteSegments, now_ms: int) -> int:
    """Return up to where the remote part of a log is clean; UNKNOWN if it has no remote part.

    Where nothing is to be cleaned, that is as far as the local part is clean. Copies that are under
    way count: they have what was removed from the local part since they began.
    """
    offsets = [
        max(copy.clean_upto, copy.start_offset)
        for copy in segments.in_state(SegmentState.COPY_STARTED)
    ]
    plan = remote_cleanable(log, segments, now_ms)
    if plan is not None and plan.dirty_bytes:
        offsets.append(plan.first_dirty_offset)
    elif parts := remote_parts(log, segments):
        offsets.append(_end_offset(log, parts, now_ms))
    return min(offsets, default=UNKNOWN)


def _end_offset(log: Log, parts: Sequence[RemotePart], now_ms: int) -> int:
    """Return up to where keys may be collected.

    What was copied when the topic was not compacted yet may be younger than
    min.compaction.lag.ms; everything else was cleaned before.
    """
    lag_ms = log.config.min_compaction_lag_ms
    for part in parts if lag_ms > 0 else ():
        if part.segment.clean_upto == UNKNOWN and part.segment.max_timestamp_ms > now_ms - lag_ms:
            return part.first_offset
    return max(parts[-1].end_offset, first_dirty_offset(log))


def groups_to_rewrite(
    parts: Sequence[RemotePart], end_offset: int, limits: GroupLimits
) -> list[list[RemotePart]]:
    """Return the parts that a clean with the keys up to an offset rewrites, in groups.

    These are all up to the last one that is not clean up to there: transactions are followed from
    the beginning. Each group fits into one segment, and has whole segments only.
    """
    last = max(
        (
            number
            for number, part in enumerate(parts)
            if part.clean_upto < end_offset and part.first_offset < end_offset
        ),
        default=-1,
    )
    chosen = parts[: last + 1]
    sizes = [
        SegmentSizes(part.first_offset, part.end_offset, part.segment.size, 0, 0) for part in chosen
    ]
    groups: list[list[RemotePart]] = []
    start = 0
    for count in group_sizes(sizes, limits):
        group = list(chosen[start : start + count])
        start += count
        ids = {part.segment.segment_id for part in group}
        while groups and any(part.segment.segment_id in ids for each in groups for part in each):
            group = groups.pop() + group
        groups.append(group)
    return groups
