"""Bugs planted in the brokers of a simulated cluster: seeds find each within a stated number.

`plant` is the bug, `kind` the kind of runs that look for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ottla.broker.handlers.fetch import Context
from ottla.broker.replicas.hosted_logs import HostedLogs
from ottla.controller import partition_change
from ottla.controller.broker_changes import PartitionRules
from ottla.controller.partition_change import Assignment, ChangeRules
from ottla.controller.quorum import driver
from ottla.controller.quorum.driver import QuorumDriver
from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.consumer import current_assignment, uniform_assignor
from ottla.coordinator.groups.consumer.assignors import MemberSpec
from ottla.coordinator.runtime.shard_runtime import ShardRuntime
from ottla.log.flush import FlushJob
from ottla.log.log import Log
from ottla.log.segment.file_slice import FileSlice
from ottla.log.state.producer_states import ProducerStates
from ottla.log.state.producer_table import ProducerBatch
from ottla.metadata.image import PartitionImage
from ottla.metadata.records import ProducerIdsRecord
from ottla.model.errors import ErrorCode
from ottla.raft import requests
from ottla.raft.effects import Append, Truncate
from ottla.raft.messages import VoteRequest
from ottla.raft.quorum_state import QuorumState
from ottla.raft.replicas import Replicas
from ottla.replication.fetch_partitions import FetchEntry
from ottla.replication.isr_changes import IsrChanges
from ottla.replication.partition import Partition
from ottla.replication.partition_follower import PartitionFollower
from ottla.replication.partition_leader import FollowerState, PartitionLeader
from ottla.sim.cluster_run.profile import (
    ClusterProfile,
    busy_profile,
    dark_profile,
    grouped_profile,
    profile_of,
    rough_profile,
)
from ottla.sim.cluster_run.report import run_seed

pytestmark = pytest.mark.interpreted

Plant = Callable[[pytest.MonkeyPatch], None]
_BROKEN = ("AttributeError", "TypeError", "NameError")
"""Errors of planted code that is broken itself."""


# -- replication -------------------------------------------------------------------------


def acknowledge_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer acks=all before followers have the records."""
    write = PartitionLeader.write

    def impatient(self: PartitionLeader) -> None:
        write(self)
        while self._uncommitted:
            _, waiter, place, position = self._uncommitted.popleft()
            waiter.appended(place, position, None)

    monkeypatch.setattr(PartitionLeader, "write", impatient)


def truncate_to_the_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the log to the high watermark when another leader is followed, as before KIP-101."""
    take_role = Partition.take_role

    def cutting(self: Partition, image: PartitionImage, broker_id: int) -> None:
        is_new = image.leader_epoch != self.leader_epoch
        take_role(self, image, broker_id)
        if is_new and self.follower is not None and self.log is not None:
            self.log.truncate_to(self.log.high_watermark)

    monkeypatch.setattr(Partition, "take_role", cutting)


def vote_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a vote to every candidate of an epoch."""
    vote = requests._vote

    def generous(quorum: QuorumState, request: VoteRequest) -> tuple[ErrorCode, bool]:
        if quorum.election.voted is not None and not request.pre_vote:
            quorum.election = quorum.election._replace(voted=None)
        return vote(quorum, request)

    monkeypatch.setattr(requests, "_vote", generous)


def commit_without_a_majority(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call metadata committed that only the leader has."""

    def hasty(self: Replicas) -> int | None:
        return self.by_descending_end_offset()[0].end_offset

    monkeypatch.setattr(Replicas, "majority_end_offset", hasty)


def keep_the_old_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    """Move the high watermark without the members that have joined the ISR."""
    lead = PartitionLeader.lead

    def stale(self: PartitionLeader, image: PartitionImage) -> None:
        before, is_new = self.isr, image.leader_epoch != self._leader_epoch
        lead(self, image)
        if not is_new:
            self.isr = tuple(each for each in image.isr if each in before) or self.isr

    monkeypatch.setattr(PartitionLeader, "lead", stale)


def count_what_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Believe that a follower has written what it has not fetched yet."""
    record_fetch = PartitionLeader.record_fetch

    def trusting(
        self: PartitionLeader, replica_id: int, offset: int, now_ms: float, *rest: int
    ) -> None:
        record_fetch(self, replica_id, self.partition.online_log().written_end, now_ms, *rest)

    monkeypatch.setattr(PartitionLeader, "record_fetch", trusting)


def serve_what_is_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let readers have records above the high watermark."""
    read = Log.read

    def open_handed(
        self: Log, offset: int, max_bytes: int, upto: int, *, at_least_one: bool
    ) -> FileSlice | None:
        upto = self.written_end if "topic" in self.directory else upto
        return read(self, offset, max_bytes, upto, at_least_one=at_least_one)

    monkeypatch.setattr(Log, "read", open_handed)


def read_elsewhere(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Let consumers who ask for certain offsets read at others."""
    look = Context._look

    def careless(self: Context, entry: FetchEntry, room: int, first: bool) -> Any:
        asked, log = entry.fetch_offset, None if entry.partition is None else entry.partition.log
        is_inside = log is not None and 0 < asked + step < log.high_watermark - 1
        if self.replica_id < 0 and not asked % 3 and is_inside:
            entry.fetch_offset = asked + step
        try:
            return look(self, entry, room, first)
        finally:
            entry.fetch_offset = asked

    monkeypatch.setattr(Context, "_look", careless)


def skip_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out batches that a consumer polls for."""
    read_elsewhere(monkeypatch, 2)


def repeat_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer a consumer with the batch before the one that it polls for."""
    read_elsewhere(monkeypatch, -1)


def elect_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold unclean elections, which nobody has allowed."""
    of = PartitionRules.of

    def unclean(self: PartitionRules, topic: str) -> ChangeRules:
        rules = of(self, topic)
        return ChangeRules(rules.is_alive, True, rules.min_insync_replicas, rules.has_elr)

    monkeypatch.setattr(PartitionRules, "of", unclean)


def publish_before_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the controller's node follow records that are only in its own log."""
    append = QuorumDriver._append

    def hasty(self: QuorumDriver, effect: Append) -> None:
        append(self, effect)
        self._listener.committed(self._log.end_offset)

    monkeypatch.setitem(driver._EXECUTE, Append, hasty)


def accept_duplicates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget that a batch was there before."""

    def forgetful(self: ProducerStates, *batch: int) -> ProducerBatch | None:
        return None

    monkeypatch.setattr(ProducerStates, "check", forgetful)


def join_without_catching_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a follower into the ISR that lacks committed records."""

    def generous(self: PartitionLeader, follower: FollowerState) -> bool:
        return follower.log_end_offset >= 0

    monkeypatch.setattr(PartitionLeader, "has_caught_up", generous)


def lead_by_old_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lead after a start before the controller has said anything."""
    start = HostedLogs.start

    def eager(self: HostedLogs) -> None:
        self._may_lead = True
        start(self)

    monkeypatch.setattr(HostedLogs, "start", eager)


def ignore_diverging_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what another leader never had."""

    def stubborn(self: PartitionFollower, epoch: int, end_offset: int) -> int:
        return self._partition.online_log().log_end_offset

    monkeypatch.setattr(PartitionFollower, "truncate", stubborn)


def shrink_without_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop waiting for followers as soon as the controller is asked to remove them."""
    propose = IsrChanges._propose

    def impatient(self: IsrChanges, leader: PartitionLeader, isr: tuple[int, ...]) -> None:
        if len(isr) < len(leader.isr):
            leader.isr = isr
        propose(self, leader, isr)
        leader.advance_high_watermark()

    monkeypatch.setattr(IsrChanges, "_propose", impatient)


def acknowledge_before_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say that records are on disk that are only in memory."""
    monkeypatch.setattr(FlushJob, "sync", lambda self: None)


# -- the controller ----------------------------------------------------------------------


def complete_reassignments_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """End a reassignment before the new replicas have the records."""

    def hasty(self: Any) -> None:
        replicas, removing, adding = self.assignment
        if removing or adding:
            staying = tuple(each for each in replicas if each not in removing)
            self.isr, self.assignment = staying, Assignment(staying)

    monkeypatch.setattr(partition_change._Change, "_complete_reassignment", hasty)


def give_producer_ids_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Note less ids as given away than were."""
    init = ProducerIdsRecord.__init__

    def forgetful(self: ProducerIdsRecord, **fields: Any) -> None:
        init(self, **fields)
        if self.next_producer_id:
            self.next_producer_id -= 999

    monkeypatch.setattr(ProducerIdsRecord, "__init__", forgetful)


def elect_the_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elect brokers that are fenced."""
    of = PartitionRules.of

    def blind(self: PartitionRules, topic: str) -> ChangeRules:
        rules = of(self, topic)
        return ChangeRules(
            lambda broker_id: True,
            rules.allows_unclean,
            rules.min_insync_replicas,
            rules.has_elr,
        )

    monkeypatch.setattr(PartitionRules, "of", blind)


def keep_diverging_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not cut metadata off that the leader of the quorum does not have."""
    monkeypatch.setitem(driver._EXECUTE, Truncate, lambda self, effect: None)


# -- groups ------------------------------------------------------------------------------


def answer_before_replication(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the coordinator answer before its records are on the other brokers."""
    append_batch = ShardRuntime._append_batch

    def hasty(self: ShardRuntime[Any]) -> None:
        answers, self._batch_answers = self._batch_answers, []
        append_batch(self)
        for reply, response in answers:
            reply.send(response)

    monkeypatch.setattr(ShardRuntime, "_append_batch", hasty)


def take_commits_of_old_generations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not fence members that are out of a classic group."""
    monkeypatch.setattr(ClassicGroup, "check_commit", lambda self, *who, **what: None)


def assign_a_partition_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a partition to all members."""
    assign_alike = uniform_assignor.assign_alike

    def generous(members: Sequence[MemberSpec], counts: Any) -> Any:
        shares = assign_alike(members, counts)
        return {member: {topic: frozenset({0}) for topic in counts} for member in shares}

    monkeypatch.setattr(uniform_assignor, "assign_alike", generous)


def assign_before_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a partition to its next member while the last one has it."""
    take_free = current_assignment._take_free

    def hasty(member_id: str, target: Any, owners: Any, kept: Any) -> bool:
        return take_free(member_id, target, {}, kept)

    monkeypatch.setattr(current_assignment, "_take_free", hasty)


ROUGH, BUSY, GROUPED, DARK = rough_profile, busy_profile, grouped_profile, dark_profile
OWN = profile_of
PLANTED = [
    pytest.param(acknowledge_what_is_written, OWN, 4, 6),
    pytest.param(count_what_was_sent, OWN, 4, 6),
    pytest.param(serve_what_is_not_committed, OWN, 4, 25),
    pytest.param(truncate_to_the_high_watermark, ROUGH, 5, 80),
    pytest.param(ignore_diverging_epochs, ROUGH, 5, 25),
    pytest.param(keep_the_old_isr, OWN, 4, 25),
    pytest.param(join_without_catching_up, ROUGH, 5, 80),
    pytest.param(shrink_without_asking, ROUGH, 5, 80),
    pytest.param(accept_duplicates, ROUGH, 5, 80),
    pytest.param(acknowledge_before_the_disk, DARK, 5, 25),
    pytest.param(lead_by_old_metadata, ROUGH, 5, 80),
    pytest.param(elect_anybody, ROUGH, 8, 80),
    pytest.param(elect_the_dead, ROUGH, 5, 25),
    pytest.param(complete_reassignments_early, BUSY, 5, 25),
    pytest.param(give_producer_ids_twice, BUSY, 5, 25),
    pytest.param(vote_twice, OWN, 4, 80),
    pytest.param(commit_without_a_majority, OWN, 4, 6),
    pytest.param(publish_before_commit, OWN, 4, 6),
    pytest.param(keep_diverging_metadata, ROUGH, 5, 80, marks=pytest.mark.slow),
    pytest.param(answer_before_replication, GROUPED, 5, 25),
    pytest.param(assign_a_partition_twice, GROUPED, 5, 6),
    pytest.param(assign_before_release, GROUPED, 5, 25),
    pytest.param(take_commits_of_old_generations, GROUPED, 5, 160, marks=pytest.mark.slow),
]
"""Each bug, the kind of runs, their seconds, and within how many seeds it is found."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("plant", "told"), [(skip_batches, " comes after "), (repeat_batches, " comes again after ")]
)
def test_polls_that_skip_or_go_back_are_found(
    plant: Plant, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told in find(plant, profile_of, 4, 25, monkeypatch)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("plant", "kind", "seconds", "seeds"), PLANTED)
def test_a_planted_bug_is_found(
    plant: Plant,
    kind: Callable[[int], ClusterProfile],
    seconds: int,
    seeds: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    find(plant, kind, seconds, seeds, monkeypatch)


def find(
    plant: Plant,
    kind: Callable[[int], ClusterProfile],
    seconds: int,
    seeds: int,
    monkeypatch: pytest.MonkeyPatch,
    first: int = 0,
) -> str:
    """Run seeds with a planted bug until one fails; return its report."""
    plant(monkeypatch)
    for seed in range(first, seeds):
        passed, report = run_seed(seed, seconds, profile=kind(seed))
        if not passed:
            assert not any(error in report for error in _BROKEN), report
            return report
    pytest.fail("nobody noticed")
