"""What must hold of a group whatever happens to it, checked from what its members told.

- No partition has two owners at one time, and none is given twice in one generation (or epoch).
- Every record is processed at least once; exactly once if nobody was killed or paused.
- What one owner commits for a partition never goes back.

A member that was killed or paused owns nothing from then on: it cannot know better, and the
coordinator has given its partitions to others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.harness.member.handle import Member
from tests.harness.member.report import Key


class Tenure(NamedTuple):
    """One member's time with one partition; `until` is infinite while it lasts.

    `bearer` is who the coordinator takes it for: a restarted static member is the same.
    `protocol` goes with the generation: an empty group that changes it begins to count anew.
    """

    member: str
    bearer: str
    protocol: str
    since: float
    until: float
    generation: int


FOREVER = float("inf")


def tenures(members: Iterable[Member]) -> dict[Key, list[Tenure]]:
    """Return who had each partition when, in the order of time."""
    found: defaultdict[Key, list[Tenure]] = defaultdict(list)
    for member in members:
        for key, tenure in _tenures_of(member):
            found[key].append(tenure)
    return {key: sorted(each, key=lambda tenure: tenure.since) for key, each in found.items()}


def check_single_owners(members: Sequence[Member]) -> None:
    """Check that no partition has two owners at a time or in one generation."""
    for key, each in tenures(members).items():
        for before, after in pairwise(each):
            assert before.until <= after.since, (
                f"{key} was with {before.member} until {before.until:.3f} and with"
                f" {after.member} since {after.since:.3f}\n" + _tails(members)
            )
        given = {((tenure.protocol, tenure.generation), tenure.bearer) for tenure in each}
        twice = [
            generation for generation, times in Counter(g for g, _ in given).items() if times > 1
        ]
        assert not twice, f"{key} has several owners in {twice}: {each}\n" + _tails(members)


def check_monotonic_commits(members: Iterable[Member]) -> None:
    """Check that commits never go back while a partition has one owner."""
    for member in members:
        last: dict[Key, int] = {}
        for event in member.snapshot():
            if event.kind in ("revoked", "assigned"):
                for key in event.partitions:
                    last.pop(key, None)
            if event.kind == "committed":
                for key, (offset,) in event.offsets:
                    assert offset >= last.get(key, 0), f"{member.name} {key} {offset} after {last}"
                    last[key] = offset


def processed(members: Iterable[Member]) -> dict[Key, Counter[int]]:
    """Return how often each offset of each partition was processed."""
    found: defaultdict[Key, Counter[int]] = defaultdict(Counter)
    for member in members:
        for event in member.of_kind("got"):
            for key, offsets in event.offsets:
                found[key].update(offsets)
    return found


def missing(members: Iterable[Member], ends: Mapping[Key, int]) -> dict[Key, int]:
    """Return how many records before the end of each partition nobody has processed yet."""
    found = processed(members)
    counts = {
        key: sum(1 for offset in range(end) if offset not in found.get(key, ()))
        for key, end in ends.items()
    }
    return {key: count for key, count in counts.items() if count}


def repeated(members: Iterable[Member]) -> dict[Key, list[int]]:
    """Return the records that were processed more than once, though their owner had committed them.

    A commit that a rebalance overtook is refused, and so the next owner begins before it: what
    a member had processed by then and could not commit in another way is left out.
    """
    members = list(members)
    refused = {key: offset for member in members for key, offset in _refused_from(member)}
    return {
        key: again
        for key, counts in processed(members).items()
        if (
            again := sorted(
                offset
                for offset, times in counts.items()
                if times > 1 and offset < refused.get(key, offset + 1)
            )
        )
    }


def _refused_from(member: Member) -> Iterable[tuple[Key, int]]:
    """Yield the offsets from which on a member processed records and could not commit them."""
    events = member.snapshot()
    if not any(event.kind == "failed" for event in events):
        return
    committed = {
        key: offsets[-1] for e in events if e.kind == "committed" for key, offsets in e.offsets
    }
    got = {key: offsets[-1] + 1 for e in events if e.kind == "got" for key, offsets in e.offsets}
    for key, end in got.items():
        if committed.get(key, 0) < end:
            yield key, committed.get(key, 0)


def _tenures_of(member: Member) -> Iterable[tuple[Key, Tenure]]:
    bearer, protocol = member.spec.instance_id or member.name, member.spec.protocol
    current: dict[Key, tuple[float, int]] = {}
    for event in member.snapshot():
        ended: Iterable[Key] = ()
        if event.kind == "assigned":
            # An owner that is given what it has keeps it; that ends nothing.
            for key in event.partitions:
                current.setdefault(key, (event.at, event.generation))
        elif event.kind == "revoked":
            ended = event.partitions
        elif event.kind in ("killed", "paused", "closed"):
            ended = list(current)
        for key in ended:
            if key in current:
                since, generation = current.pop(key)
                yield key, Tenure(member.name, bearer, protocol, since, event.at, generation)
    for key, (since, generation) in current.items():
        yield key, Tenure(member.name, bearer, protocol, since, FOREVER, generation)


def _tails(members: Iterable[Member]) -> str:
    return "\n".join(member.tail() for member in members)
