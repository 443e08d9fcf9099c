"""Members of groups in simulated runs, and that a coordinator's faults are found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from ottla.coordinator.groups.classic import sync_group
from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.consumer import current_assignment
from ottla.coordinator.groups.offsets import Offsets
from ottla.coordinator.groups.records import OffsetCommitKey, OffsetCommitValue
from ottla.sim.network.exchange import Violation
from ottla.sim.profile import Profile, profile_of
from ottla.sim.simulation import Simulation
from ottla.wire.messages.sync_group import SyncGroupResponse

STEPS = 800
SEEDS = range(1000, 1016)
PLANTED_SEEDS = range(2000, 2020)
ASKED = (
    "FindCoordinator",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "ConsumerGroupHeartbeat",
    "OffsetCommit",
    "OffsetFetch",
)


def with_groups(seed: int) -> Profile:
    """Return the profile of a seed, with members of groups and little else."""
    return profile_of(seed)._replace(
        classic_members=3,
        consumer_members=3,
        producers=0,
        consumers=0,
        idempotent_producers=1,
        noise=0,
        full_rate=0.0,
        error_rate=0.0,
    )


def run(seed: int) -> Counter[str]:
    simulation = Simulation(seed, STEPS, profile=with_groups(seed))
    simulation.run()
    return simulation.counts


def run_all(seeds: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        counts += run(seed)
    return counts


def test_members_do_everything_that_members_do() -> None:
    counts = run_all(SEEDS)
    assert {"end: kill", "end: power", "end: clean"} <= set(counts)
    for name in ASKED:
        assert counts[f"{name}Request"] > 3, name


def forget_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acknowledge offsets that are not kept."""
    put, count = Offsets.put, [0]

    def losing(self: Offsets, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        count[0] += 1
        if count[0] % 3:
            put(self, key, value)

    monkeypatch.setattr(Offsets, "put", losing)


def assign_everything_to_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer SyncGroup with the assignment of whichever member has most."""

    def assigned(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
        largest = max((each.assignment for each in group.members.values()), key=len)
        return SyncGroupResponse(
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            assignment=max(largest, assignment, key=len),
        )

    monkeypatch.setattr(sync_group, "_assigned", assigned)


def give_before_it_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Assign partitions that another member has not given up."""

    def take_all(
        member_id: str,
        target: current_assignment.Target,
        owners: object,
        kept: dict[bytes, Mapping[int, int]],
    ) -> bool:
        for topic_id, wanted in target.partitions.items():
            kept[topic_id] = dict.fromkeys(wanted, target.epoch)
        return True

    monkeypatch.setattr(current_assignment, "_take_free", take_all)


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (forget_commits, "the offset is"),
        (assign_everything_to_everybody, "the leader assigned"),
        (give_before_it_is_given_up, "was given to"),
    ],
)
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(Violation, match=words):
        run_all(PLANTED_SEEDS)
