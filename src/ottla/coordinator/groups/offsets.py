"""The committed offsets of a shard, transactions included.

`put` and `remove` are for replay only. A commit in a transaction counts when the transaction
commits, unless a later commit for the same partition came first. Until then the partition's
offset is unstable (KIP-98, KIP-447).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from ottla.coordinator.groups.records import OffsetCommitKey, OffsetCommitValue

Place: TypeAlias = tuple[str, str, int]
"""Group, topic and partition."""


class PendingCommit(NamedTuple):
    """A commit of an open transaction, and the offset of its record."""

    record_offset: int
    value: OffsetCommitValue


class Offsets:
    """Offsets by group, topic and partition.

    Pending commits are found by their producer, by their place and by their group, so that no
    request looks at all open transactions.
    """

    __slots__ = ("_pending", "_pending_of_group", "_producers", "by_group", "count")

    def __init__(self) -> None:
        self.by_group: dict[str, dict[str, dict[int, OffsetCommitValue]]] = {}
        self.count = 0
        self._pending: dict[Place, dict[int, PendingCommit]] = {}
        """The pending commits of each place, by producer id."""
        self._producers: dict[int, set[Place]] = {}
        """The places of each producer's pending commits."""
        self._pending_of_group: dict[str, set[Place]] = {}

    # -- questions -----------------------------------------------------------------------

    def get(self, group_id: str, topic: str, partition: int) -> OffsetCommitValue | None:
        """Return the committed offset, or None."""
        try:
            return self.by_group[group_id][topic][partition]
        except KeyError:
            return None

    def of(self, group_id: str) -> Iterator[tuple[OffsetCommitKey, OffsetCommitValue]]:
        """Iterate over all offsets of a group."""
        for topic, partitions in self.by_group.get(group_id, {}).items():
            for partition, value in partitions.items():
                yield OffsetCommitKey(group=group_id, topic=topic, partition=partition), value

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Return True if an open transaction has committed an offset for this partition."""
        return (group_id, topic, partition) in self._pending

    @property
    def has_pending(self) -> bool:
        """True if any open transaction has committed an offset."""
        return bool(self._pending)

    def has_open_transactions(self, group_id: str) -> bool:
        """Return True if an open transaction has committed an offset of this group."""
        return group_id in self._pending_of_group

    def pending(self) -> list[Place]:
        """Return the partitions for which open transactions have committed offsets."""
        return list(self._pending)

    def pending_with(self, producer_id: int, keys: Iterable[OffsetCommitKey]) -> int:
        """Return for how many partitions a transaction commits offsets if it adds some."""
        places = self._producers.get(producer_id, set())
        added = {(key.group, key.topic, key.partition) for key in keys}
        return len(places) + len(added - places)

    def pending_of(self, group_id: str) -> Iterator[OffsetCommitKey]:
        """Iterate over such partitions of one group."""
        for group, topic, partition in self._pending_of_group.get(group_id, ()):
            yield OffsetCommitKey(group=group, topic=topic, partition=partition)

    # -- replay --------------------------------------------------------------------------

    def put(self, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        """Store an offset that was committed outside of transactions."""
        self._store(key, value)
        if self._pending:
            self._supersede((key.group, key.topic, key.partition), None)

    def _store(self, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        try:
            partitions = self.by_group[key.group][key.topic]
        except KeyError:
            partitions = self.by_group.setdefault(key.group, {}).setdefault(key.topic, {})
        if key.partition not in partitions:
            self.count += 1
        partitions[key.partition] = value

    def put_pending(
        self, key: OffsetCommitKey, value: OffsetCommitValue, producer_id: int, record_offset: int
    ) -> None:
        """Store an offset that was committed in an open transaction."""
        place = (key.group, key.topic, key.partition)
        self._pending.setdefault(place, {})[producer_id] = PendingCommit(record_offset, value)
        self._producers.setdefault(producer_id, set()).add(place)
        self._pending_of_group.setdefault(key.group, set()).add(place)

    def remove(self, key: OffsetCommitKey) -> None:
        """Remove an offset that was deleted or has expired."""
        topics = self.by_group.get(key.group, {})
        partitions = topics.get(key.topic, {})
        if partitions.pop(key.partition, None) is not None:
            self.count -= 1
            if not partitions:
                del topics[key.topic]
            if not topics:
                del self.by_group[key.group]
        if self._pending:
            self._supersede((key.group, key.topic, key.partition), None)

    def end_transaction(self, producer_id: int, *, committed: bool) -> list[OffsetCommitKey]:
        """Apply or drop the commits of a transaction, and return their keys."""
        keys = []
        for place in sorted(self._producers.get(producer_id, ())):
            group, topic, partition = place
            key = OffsetCommitKey(group=group, topic=topic, partition=partition)
            keys.append(key)
            commit = self._drop(place, producer_id)
            if committed:
                self._store(key, commit.value)
                self._supersede(place, commit.record_offset)
        return keys

    def _supersede(self, place: Place, before: int | None) -> None:
        """Drop pending commits of a partition: all, or those with records before an offset."""
        for producer_id, commit in list(self._pending.get(place, {}).items()):
            if before is None or commit.record_offset < before:
                self._drop(place, producer_id)

    def _drop(self, place: Place, producer_id: int) -> PendingCommit:
        commits = self._pending[place]
        commit = commits.pop(producer_id)
        if not commits:
            del self._pending[place]
            of_group = self._pending_of_group[place[0]]
            of_group.remove(place)
            if not of_group:
                del self._pending_of_group[place[0]]
        places = self._producers[producer_id]
        places.remove(place)
        if not places:
            del self._producers[producer_id]
        return commit
