"""Compares the remote part of a partition with what its leader says."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.cli.tier.source import LocalPart
from ottla.tier_reader.findings import Finding, problem, remark
from ottla.tier_reader.segment_chain import SegmentChain


def compare_with_local(chain: SegmentChain, local: LocalPart | None) -> Iterator[Finding]:
    """Yield offsets that are in neither part, and what the leader and the store see differently."""
    if local is None:
        return
    earliest, earliest_local, latest_tiered, latest = local.offsets
    if earliest is None or latest is None:
        yield remark("the leader does not answer, so the local part is unknown")
        return
    local_start = earliest if earliest_local is None else earliest_local
    first = chain.segments[0].first_offset if chain.segments else local_start
    next_offset = chain.segments[-1].last_offset + 1 if chain.segments else first
    if earliest < min(first, local_start):
        missing = min(first, local_start) - 1
        yield problem(f"offsets {earliest} to {missing} are neither remote nor local")
    if next_offset < local_start:
        yield problem(f"offsets {next_offset} to {local_start - 1} are neither remote nor local")
    if latest_tiered is not None and latest_tiered >= next_offset:
        yield problem(
            f"the leader says that offset {latest_tiered} is remote, the store ends before"
            f" {next_offset}"
        )
