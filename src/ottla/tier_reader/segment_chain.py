"""Which part of which remote segment is read for an offset.

Usually a segment begins where the one before it ends. After a change of leaders two of them may
overlap: both leaders had uploaded the same records, divided differently. Then each offset is
read from one of them. If an unclean election had removed records, segments of the old leader may
have records that are not in the log any more. The leader epochs of the newest segment (the
*lineage*) say which.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from ottla.log.state.leader_epochs import EpochEntry
from ottla.tiered.manifest import Manifest


class ChainedSegment(NamedTuple):
    """A segment, and the offsets that are read from it, both inclusive."""

    manifest: Manifest
    first_offset: int
    last_offset: int


class OffsetRange(NamedTuple):
    """Offsets, both inclusive."""

    first_offset: int
    last_offset: int


class SegmentChain(NamedTuple):
    """The segments of a partition in the order of their offsets."""

    segments: tuple[ChainedSegment, ...]
    gaps: tuple[OffsetRange, ...]
    """Offsets between segments that no segment has."""
    unused: tuple[Manifest, ...]
    """Segments that are not read: replaced, deleted, or wholly contained in others."""


def newest(manifests: Iterable[Manifest]) -> Manifest:
    """Return the segment that the latest leader wrote last."""
    return max(manifests, key=lambda m: (m.leader_epochs[-1].epoch, m.end_offset))


def needs_lineage(manifests: Iterable[Manifest]) -> bool:
    """Return True if segments overlap, or leader epochs do not rise from one to the next."""
    ordered = sorted(manifests, key=lambda m: (m.start_offset, m.end_offset))
    return any(
        earlier.end_offset >= later.start_offset
        or earlier.leader_epochs[-1].epoch > later.leader_epochs[0].epoch
        for earlier, later in pairwise(ordered)
    )


def build_chain(
    manifests: Sequence[Manifest],
    log_start_offset: int = 0,
    lineage: Sequence[EpochEntry] = (),
) -> SegmentChain:
    """Return what is read from which segment, from the log start offset on."""
    replaced = {segment_id for manifest in manifests for segment_id in manifest.replaces}
    ends = {
        manifest.segment_id: valid_end(manifest, lineage)
        for manifest in manifests
        if manifest.segment_id not in replaced
    }
    ordered = sorted(
        (m for m in manifests if m.segment_id in ends),
        key=lambda m: (m.start_offset, -ends[m.segment_id], -m.leader_epochs[-1].epoch),
    )
    chain: list[ChainedSegment] = []
    gaps: list[OffsetRange] = []
    used: set[bytes] = set()
    next_offset = log_start_offset
    for manifest in ordered:
        last = ends[manifest.segment_id]
        first = max(manifest.start_offset, next_offset)
        if last < first:
            continue
        if chain and first > next_offset:
            gaps.append(OffsetRange(next_offset, first - 1))
        chain.append(ChainedSegment(manifest, first, last))
        used.add(manifest.segment_id)
        next_offset = last + 1
    unused = tuple(manifest for manifest in manifests if manifest.segment_id not in used)
    return SegmentChain(tuple(chain), tuple(gaps), unused)


def valid_end(manifest: Manifest, lineage: Sequence[EpochEntry]) -> int:
    """Return the last offset of a segment that is still in the log; before its start if none is."""
    if not lineage:
        return manifest.end_offset
    known_from = lineage[0].start_offset
    ends = {entry.epoch: following.start_offset for entry, following in pairwise(lineage)}
    ends[lineage[-1].epoch] = manifest.end_offset + 1
    starts = {entry.epoch: entry.start_offset for entry in lineage}
    last = manifest.start_offset - 1
    bounds = [max(entry.start_offset, manifest.start_offset) for entry in manifest.leader_epochs]
    for entry, first, end in zip(
        manifest.leader_epochs, bounds, [*bounds[1:], manifest.end_offset + 1], strict=True
    ):
        if end <= known_from:
            last = end - 1
            continue
        if entry.epoch not in starts or starts[entry.epoch] > max(first, known_from):
            return max(last, min(end, known_from) - 1)
        last = min(end, max(ends[entry.epoch], known_from)) - 1
        if last < end - 1:
            return last
    return last
