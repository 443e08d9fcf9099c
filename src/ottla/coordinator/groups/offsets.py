"""The committed offsets of a shard, transactions included.

`put` and `remove` are for replay only. A commit in a transaction counts when the transaction
commits, unless a later commit for the same partition came first. Until then the partition's
offset is unstable (KIP-98, KIP-447).

A transaction may have thousands of commits, so its end is applied in steps. The result does not
depend on what is applied in between: of two commits for a partition, the later record counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from ottla.coordinator.groups.records import OffsetCommitKey, OffsetCommitValue
from ottla.model.steps import Steps

Place: TypeAlias = tuple[str, str, int]
"""Group, topic and partition."""


class PendingCommit(NamedTuple):
    """A commit of an open transaction, and the offset of its record."""

    record_offset: int
    value: OffsetCommitValue


class _Transaction:
    """The places of one transaction's pending commits, in the order of their records."""

    __slots__ = ("places",)

    def __init__(self) -> None:
        self.places: dict[Place, None] = {}


_COMMITS_A_STEP: Final = 50


class Offsets:
    """Offsets by group, topic and partition.

    Pending commits are found by their producer, by their place and by their group, so that no
    request looks at all open transactions.
    """

    __slots__ = ("_open", "_pending", "_pending_of_group", "by_group", "count")

    def __init__(self) -> None:
        self.by_group: dict[str, dict[str, dict[int, OffsetCommitValue]]] = {}
        self.count = 0
        self._pending: dict[Place, dict[_Transaction, PendingCommit]] = {}
        """The pending commits of each place."""
        self._open: dict[int, _Transaction] = {}
        """The transaction of each producer that has pending commits and no marker yet."""
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

    def is_pending_for(self, place: Place, topic_ids: Collection[bytes]) -> bool:
        """Return True if all pending commits of a partition are for a topic with such an id."""
        commits = self._pending.get(place, {}).values()
        return all(commit.value.topic_id in topic_ids for commit in commits)

    def pending_with(self, producer_id: int, keys: Iterable[OffsetCommitKey]) -> int:
        """Return for how many partitions a transaction commits offsets if it adds some."""
        transaction = self._open.get(producer_id)
        places = {} if transaction is None else transaction.places
        added = {(key.group, key.topic, key.partition) for key in keys}
        return len(places) + sum(place not in places for place in added)

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
        transaction = self._open.get(producer_id)
        if transaction is None:
            transaction = self._open[producer_id] = _Transaction()
        self._pending.setdefault(place, {})[transaction] = PendingCommit(record_offset, value)
        transaction.places[place] = None
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

    def end_transaction(
        self, producer_id: int, *, committed: bool, ended: Callable[[OffsetCommitKey], None]
    ) -> Steps[None]:
        """Return the steps that apply or drop the commits of a transaction.

        What the producer commits from now on is in its next transaction. `ended` is called with
        each key that the transaction had.
        """
        transaction = self._open.pop(producer_id, None)
        return self._end(transaction or _Transaction(), committed, ended)

    def _end(
        self, transaction: _Transaction, committed: bool, ended: Callable[[OffsetCommitKey], None]
    ) -> Steps[None]:
        for number, place in enumerate(list(transaction.places), 1):
            commit = self._drop(place, transaction)
            if commit is None:
                continue  # a later commit was applied meanwhile
            group, topic, partition = place
            key = OffsetCommitKey(group=group, topic=topic, partition=partition)
            if committed:
                self._store(key, commit.value)
                self._supersede(place, commit.record_offset)
            ended(key)
            if not number % _COMMITS_A_STEP:
                yield

    def _supersede(self, place: Place, before: int | None) -> None:
        """Drop pending commits of a partition: all, or those with records before an offset."""
        for transaction, commit in list(self._pending.get(place, {}).items()):
            if before is None or commit.record_offset < before:
                self._drop(place, transaction)

    def _drop(self, place: Place, transaction: _Transaction) -> PendingCommit | None:
        """Remove and return a pending commit; None if a later one has replaced it."""
        commits = self._pending.get(place)
        commit = None if commits is None else commits.pop(transaction, None)
        if commits is None or commit is None:
            return None
        if not commits:
            del self._pending[place]
            of_group = self._pending_of_group[place[0]]
            of_group.remove(place)
            if not of_group:
                del self._pending_of_group[place[0]]
        transaction.places.pop(place, None)
        return commit
