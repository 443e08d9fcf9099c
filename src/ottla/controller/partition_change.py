"""Changes of a partition: who leads it, which replicas it has, and which are in sync (ISR).

A change says which replicas are to be in sync, how they are assigned, and which election is held.
The leader stays if it may; else the first replica in order that is in sync and alive leads. If the
ISR is empty, eligible leader replicas count as in sync (KIP-966). If there are none either, the
last known leader may lead again. Else, if unclean elections are allowed, any replica that is alive
may lead. A new leader that was not in sync is alone in the ISR, as records of the others may not be
in its log.

A reassignment adds the new replicas first. When all replicas that are to stay are in sync, the
others are removed, in the change that brings the last one into the ISR.

Invariants:
    the leader is in the ISR, or there is no leader
    without eligible leader replicas (the feature is off) the ISR never becomes empty
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from ottla.metadata.image import PartitionImage
from ottla.metadata.records import NO_LEADER, NO_LEADER_CHANGE, PartitionChangeRecord
from ottla.model.ids import UNASSIGNED_DIRECTORY
from ottla.model.value import Value

RECOVERED = 0
RECOVERING = 1


class Election(Enum):
    """Who may be elected."""

    ONLINE = "only if the leader is gone"
    PREFERRED = "the first replica, if it may"
    UNCLEAN = "any replica that is alive"


class Assignment(NamedTuple):
    """The replicas of a partition, and which of them a reassignment adds and removes."""

    replicas: tuple[int, ...]
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()


def _unassigned(broker_id: int) -> bytes:
    """Leave it to the broker where it puts its replica."""
    return UNASSIGNED_DIRECTORY


def _every_directory(broker_id: int, directory: bytes) -> bool:
    """Take all directories for online."""
    return True


class ChangeRules(Value):
    """What decides about one partition besides its image."""

    is_alive: Callable[[int], bool]
    """True for a broker that may lead: it is active."""
    allows_unclean: bool = False
    min_insync_replicas: int = 1
    has_elr: bool = False
    """True if the feature eligible.leader.replicas.version is on."""
    directory_of: Callable[[int], bytes] = _unassigned
    """The log directory for a new replica on a broker."""
    is_online: Callable[[int, bytes], bool] = _every_directory
    """True if a broker can use this log directory. A replica in another one cannot lead."""


def change_partition(
    topic_id: bytes,
    partition: PartitionImage,
    rules: ChangeRules,
    *,
    isr: Sequence[int] | None = None,
    assignment: Assignment | None = None,
    election: Election = Election.ONLINE,
    leader_recovery_state: int | None = None,
    directories: Mapping[int, bytes] | None = None,
    lost: Collection[int] = (),
) -> PartitionChangeRecord | None:
    """Return the record of a change; None if nothing changes.

    `isr` are the replicas that are to be in sync, in any order; None leaves them. `directories`
    says where replicas are now. `lost` are replicas that may lack committed records: they are not
    eligible leaders any more, and one that begins anew in another directory is not the last leader.
    """
    change = _Change(partition, rules, isr, assignment, directories or {}, lost)
    record = PartitionChangeRecord(partition_id=partition.partition_id, topic_id=topic_id)
    change.elect(election, record)
    change.write(record)
    if leader_recovery_state not in (None, partition.leader_recovery_state):
        assert leader_recovery_state is not None
        record.leader_recovery_state = leader_recovery_state
    return record if _changes(record) else None


class _Change:
    """A partition as it is to become."""

    def __init__(
        self,
        partition: PartitionImage,
        rules: ChangeRules,
        isr: Sequence[int] | None,
        assignment: Assignment | None,
        moved: Mapping[int, bytes],
        lost: Collection[int],
    ) -> None:
        self._old = partition
        self._rules = rules
        self._lost = lost
        self._begins_anew = [each for each in lost if each in moved]
        self._directories = {**directories_of(partition), **moved}
        self.isr = partition.isr if isr is None else _in_order(partition, isr)
        self.assignment = assignment or assignment_of(partition)
        self._complete_reassignment()
        self.elr = self._eligible()

    def _complete_reassignment(self) -> None:
        """Remove what is to go if all replicas that are to stay are in sync."""
        replicas, removing, adding = self.assignment
        if not removing and not adding:
            return
        staying = tuple(each for each in replicas if each not in removing)
        isr = tuple(each for each in self.isr if each not in removing)
        if staying and set(staying) <= set(isr):
            self.isr, self.assignment = isr, Assignment(staying)

    def _eligible(self) -> tuple[int, ...]:
        """Return the eligible leader replicas after the change of the ISR.

        While the ISR is smaller than min.insync.replicas, no acks=all write is taken. So replicas
        that leave it then still have everything that is committed.
        """
        old, rules = self._old, self._rules
        replicas = self.assignment.replicas
        if not rules.has_elr or len(self.isr) >= min(rules.min_insync_replicas, len(replicas)):
            return ()
        before = dict.fromkeys((*old.eligible_leader_replicas, *old.isr))
        return tuple(
            each
            for each in before
            if each not in self.isr and each in replicas and each not in self._lost
        )

    # -- the election --------------------------------------------------------------------

    def elect(self, election: Election, record: PartitionChangeRecord) -> None:
        """Elect a leader, and note it if it is another one."""
        leader, is_unclean = self._leader(election)
        if leader == self._old.leader:
            return
        record.leader = leader
        if is_unclean:
            self.isr, self.elr = (leader,), ()
            if self._old.leader_recovery_state != RECOVERING:
                record.leader_recovery_state = RECOVERING
        elif leader in self.elr:  # it is in sync again, alone
            self.isr = (leader,)
            self.elr = tuple(each for each in self.elr if each != leader)

    def _leader(self, election: Election) -> tuple[int, bool]:
        """Return the leader, and True if it may lack records."""
        replicas, old = self.assignment.replicas, self._old
        first: tuple[int, ...] = (old.leader,)
        if election is Election.PREFERRED:
            first = (*replicas[:1], old.leader)
        for replica in (*first, *replicas):
            if self._may_lead(replica):
                return replica, False
        if self._may_last_known_lead():
            return old.last_known_elr[0], True
        if election is Election.UNCLEAN or (
            election is Election.ONLINE and self._rules.allows_unclean
        ):
            for replica in replicas:
                if self._is_alive(replica):
                    return replica, True
        return NO_LEADER, False

    def _may_lead(self, replica: int) -> bool:
        has_everything = replica in self.isr or (not self.isr and replica in self.elr)
        return has_everything and self._is_alive(replica)

    def _is_alive(self, replica: int) -> bool:
        """Return True if the broker of a replica is active and has its log directory."""
        directory = self._directories.get(replica)
        return self._rules.is_alive(replica) and (
            directory is None or self._rules.is_online(replica, directory)
        )

    def _may_last_known_lead(self) -> bool:
        """Return True if the last leader is there again and nobody else has as much."""
        last = self._old.last_known_elr
        if not self._rules.has_elr or self.isr or self.elr or len(last) != 1:
            return False
        return last[0] in self.assignment.replicas and self._is_alive(last[0])

    # -- the record ----------------------------------------------------------------------

    def write(self, record: PartitionChangeRecord) -> None:
        """Note everything that differs from the partition as it was."""
        old = self._old
        replicas, removing, adding = self.assignment
        if record.leader == NO_LEADER_CHANGE and not set(old.replicas) <= set(replicas):
            record.leader = old.leader  # a new leader epoch: replicas that are gone are fenced
        if self.isr != old.isr and (self.isr or self._rules.has_elr):
            record.isr = list(self.isr)
        if self.elr != old.eligible_leader_replicas:
            record.eligible_leader_replicas = list(self.elr)
        self._write_last_known(record)
        if replicas != old.replicas:
            record.replicas = list(replicas)
        if replicas != old.replicas or self._directories != directories_of(old):
            known = self._directories
            record.directories = [
                known[each] if each in known else self._rules.directory_of(each)
                for each in replicas
            ]
        if removing != old.removing_replicas:
            record.removing_replicas = list(removing)
        if adding != old.adding_replicas:
            record.adding_replicas = list(adding)

    def _write_last_known(self, record: PartitionChangeRecord) -> None:
        """Remember the last leader when the ISR becomes empty, forget it with the next one."""
        old = self._old
        if not self._rules.has_elr:
            return
        if record.isr == [] and old.leader != NO_LEADER:
            record.last_known_elr = [old.leader]
        elif record.isr == [] and len(old.isr) == 1:  # it was to lead again: nobody else has more
            record.last_known_elr = list(old.isr)
        elif old.last_known_elr:
            leader = old.leader if record.leader == NO_LEADER_CHANGE else record.leader
            if leader != NO_LEADER or old.last_known_elr[0] in self._begins_anew:
                record.last_known_elr = []


def assignment_of(partition: PartitionImage) -> Assignment:
    """Return how the replicas of a partition are assigned now."""
    return Assignment(partition.replicas, partition.removing_replicas, partition.adding_replicas)


def directories_of(partition: PartitionImage) -> dict[int, bytes]:
    """Return the log directory of each replica, as far as they are known."""
    return dict(zip(partition.replicas, partition.directories, strict=False))


def _changes(record: PartitionChangeRecord) -> bool:
    return (
        record.leader != NO_LEADER_CHANGE
        or record.leader_recovery_state >= 0
        or any(
            each is not None
            for each in (
                record.isr,
                record.replicas,
                record.directories,
                record.removing_replicas,
                record.adding_replicas,
                record.eligible_leader_replicas,
                record.last_known_elr,
            )
        )
    )


def _in_order(partition: PartitionImage, isr: Sequence[int]) -> tuple[int, ...]:
    """Return the ISR as it was, without those that left and with new ones at its end."""
    kept = tuple(replica for replica in partition.isr if replica in isr)
    return kept + tuple(replica for replica in isr if replica not in kept)
