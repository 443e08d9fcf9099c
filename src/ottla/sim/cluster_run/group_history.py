"""What groups have promised: who owns a partition in a generation, and which offset is committed.

Everything is noted when a coordinator decides it, in that order, not when clients are told.
Members commit numbers that grow, and one that hung up sends nothing more, so a committed offset
that is smaller than an older one was taken back by the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.sim.network.exchange import Violation

HOLD_MS = 1000.0
"""How long a member surely keeps a partition that it was told to have: less than its timeouts."""
OffsetKey = tuple[str, str, int]
"""A group, a topic and a partition."""


class GroupHistory:
    """The history of all groups."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, int, str], str] = {}
        self._generations: dict[str, int] = {}
        self._assigned: dict[tuple[str, str], set[str]] = {}
        self._holders: dict[tuple[str, str], tuple[str, float]] = {}
        """Which member of a KIP-848 group had a partition last, and when it asked."""
        self.offsets: dict[OffsetKey, int] = {}
        """The offset that was acknowledged last."""
        self._acknowledged: dict[OffsetKey, list[tuple[float, int]]] = {}
        """All that were acknowledged, and when."""

    def own(self, group: str, generation: int, member: str, partitions: Iterable[str]) -> None:
        """Take note of what a member has in a generation, or at a member epoch."""
        for partition in partitions:
            owner = self._owners.setdefault((group, generation, partition), member)
            if owner != member:
                raise Violation(
                    f"{partition} belongs to {owner} and to {member} in generation {generation}"
                    f" of {group}"
                )

    def hold(
        self, group: str, member: str, partitions: Iterable[str], sent_ms: float, now_ms: float
    ) -> None:
        """Take note of the assignment that a member of a KIP-848 group is told.

        `sent_ms` is when it asked. Nobody else may have a partition while its holder neither gave
        it up nor was silent.
        """
        self._assigned[group, member] = set(partitions)
        for partition in self._assigned[group, member]:
            holder, asked_ms = self._holders.get((group, partition), (member, now_ms))
            if holder != member and now_ms - asked_ms < HOLD_MS:
                raise Violation(
                    f"{partition} of {group} is given to {member}, and {holder} has it, which"
                    f" asked at {asked_ms}"
                )
            self._holders[group, partition] = member, sent_ms

    def still_hold(self, group: str, member: str, sent_ms: float) -> None:
        """Take note that a member was heard of, and keeps what it has."""
        for partition in self._assigned.get((group, member), ()):
            if self._holders.get((group, partition), ("", 0.0))[0] == member:
                self._holders[group, partition] = member, sent_ms

    def release(self, group: str, member: str, kept: Iterable[str] = ()) -> None:
        """Take note that a member says that it has nothing but `kept`, or that it is out."""
        kept = set(kept)
        held = [
            key
            for key, (holder, _) in self._holders.items()
            if key[0] == group and holder == member and key[1] not in kept
        ]
        for key in held:
            del self._holders[key]
        if not kept:
            self._assigned.pop((group, member), None)

    def synchronized(self, group: str, generation: int) -> None:
        """Take note that a generation of a classic group has its assignments."""
        self._generations[group] = max(generation, self._generations.get(group, 0))

    def committed(self, key: OffsetKey, generation: int, offset: int, now_ms: float) -> None:
        """Take note that a commit was acknowledged."""
        newest = self._generations.get(key[0], 0)
        if generation < newest:
            raise Violation(
                f"{offset} of {key} was committed in generation {generation}, after {newest} began"
            )
        _check(key, self.offsets.get(key, -1), offset)
        self.offsets[key] = offset
        self._acknowledged.setdefault(key, []).append((now_ms, offset))

    def told(self, key: OffsetKey, offset: int, sent_ms: float) -> None:
        """Raise Violation if a member is told an older offset than was acknowledged when it asked.

        A coordinator reads offsets, and then waits until those before them are committed. What
        is committed meanwhile may be acknowledged first.
        """
        known = self._acknowledged.get(key, ())
        _check(key, next((had for ms, had in reversed(known) if ms < sent_ms), -1), offset)


def _check(key: OffsetKey, before: int, offset: int) -> None:
    if offset < before:
        raise Violation(f"the committed offset of {key} goes back from {before} to {offset}")
