"""The committed offsets of a shard, transactions included.

`put` and `remove` are for replay only. A commit in a transaction counts when the transaction
commits, unless a later commit for the same partition came first. Until then the partition's
offset is unstable (KIP-98, KIP-447).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.coordinator.groups.records import OffsetCommitKey, OffsetCommitValue


class PendingCommit(NamedTuple):
    """A commit of an open transaction, and the offset of its record."""

    record_offset: int
    value: OffsetCommitValue


class Offsets:
    """Offsets by group, topic and partition."""

    __slots__ = ("_pending", "by_group", "count")

    def __init__(self) -> None:
        self.by_group: dict[str, dict[str, dict[int, OffsetCommitValue]]] = {}
        self.count = 0
        self._pending: dict[int, dict[tuple[str, str, int], PendingCommit]] = {}

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
        place = (group_id, topic, partition)
        return any(place in pending for pending in self._pending.values())

    @property
    def has_pending(self) -> bool:
        """True if any open transaction has committed an offset."""
        return bool(self._pending)

    def has_open_transactions(self, group_id: str) -> bool:
        """Return True if an open transaction has committed an offset of this group."""
        return any(place[0] == group_id for pending in self._pending.values() for place in pending)

    def pending(self) -> Iterator[OffsetCommitKey]:
        """Iterate over the partitions for which open transactions have committed offsets."""
        for commits in self._pending.values():
            for group, topic, partition in commits:
                yield OffsetCommitKey(group=group, topic=topic, partition=partition)

    # -- replay --------------------------------------------------------------------------

    def put(self, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        """Store an offset that was committed outside of transactions."""
        try:
            partitions = self.by_group[key.group][key.topic]
        except KeyError:
            partitions = self.by_group.setdefault(key.group, {}).setdefault(key.topic, {})
        if key.partition not in partitions:
            self.count += 1
        partitions[key.partition] = value
        if self._pending:
            self._supersede((key.group, key.topic, key.partition), None)

    def put_pending(
        self, key: OffsetCommitKey, value: OffsetCommitValue, producer_id: int, record_offset: int
    ) -> None:
        """Store an offset that was committed in an open transaction."""
        pending = self._pending.setdefault(producer_id, {})
        pending[key.group, key.topic, key.partition] = PendingCommit(record_offset, value)

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
        pending = self._pending.pop(producer_id, {})
        keys = []
        for (group, topic, partition), commit in pending.items():
            key = OffsetCommitKey(group=group, topic=topic, partition=partition)
            keys.append(key)
            if committed:
                others, self._pending = self._pending, {}
                self.put(key, commit.value)
                self._pending = others
                self._supersede((group, topic, partition), commit.record_offset)
        return keys

    def _supersede(self, place: tuple[str, str, int], before: int | None) -> None:
        """Drop pending commits of a partition: all, or those with records before an offset."""
        for producer_id, pending in list(self._pending.items()):
            commit = pending.get(place)
            if commit is not None and (before is None or commit.record_offset < before):
                del pending[place]
                if not pending:
                    del self._pending[producer_id]
