"""Raft's promises under a hostile network, crashes and voter changes; and planted bugs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.raft import prospective, unattached
from ottla.raft.leader import Leader
from ottla.raft.messages import VoteRequest
from ottla.raft.quorum_state import QuorumState
from tests.support.raft_cluster import MemoryLog
from tests.support.raft_simulation import Broken, Faults, Simulation

FAULTY_MS = 6_000
HEALING_MS = 6_000


def check_progress(simulation: Simulation) -> None:
    """Check that a healed quorum has a leader, and that all nodes get what it appends."""
    simulation.heal()
    simulation.run(HEALING_MS, turn_ms=500)
    leader = simulation.leader()
    assert leader is not None
    simulation.append(leader)
    end_offset = leader.log.end_offset
    simulation.run(2_000, turn_ms=10_000)
    for node in simulation.nodes.values():
        assert node.committed >= end_offset, f"{node.id} has {node.committed} of {end_offset}"


@pytest.mark.parametrize("voters", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("seed", range(4))
def test_static_voters(voters: int, seed: int) -> None:
    simulation = Simulation(seed, voters, observers=seed % 2)
    simulation.run(FAULTY_MS)
    check_progress(simulation)


@pytest.mark.parametrize("seed", range(16))
def test_dynamic_voters(seed: int) -> None:
    faults = Faults(voter_change=0.1)
    simulation = Simulation(seed, 1 + seed % 3, observers=2, dynamic=True, faults=faults)
    simulation.run(FAULTY_MS)
    check_progress(simulation)


# Planted bugs: the simulation must notice each of them, and nothing without them.


def is_broken(seed: int, voters: int, faults: Faults) -> bool:
    """Return True if a promise of Raft is broken in this run."""
    try:
        Simulation(seed, voters, faults=faults).run(FAULTY_MS)
    except Broken:
        return True
    return False


def check_noticed(
    monkeypatch: pytest.MonkeyPatch,
    bug: Callable[[], None],
    voters: int,
    faults: Faults,
    seeds: int = 100,
) -> None:
    """Check that the bug breaks a promise in one of the runs, and that it was the bug."""
    bug()
    broken = next((seed for seed in range(seeds) if is_broken(seed, voters, faults)), None)
    assert broken is not None
    monkeypatch.undo()
    assert not is_broken(broken, voters, faults)


def test_a_vote_given_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def grants_again(quorum: QuorumState, request: VoteRequest, is_up_to_date: bool) -> bool:
        return is_up_to_date

    def plant() -> None:
        for module in (unattached, prospective):
            monkeypatch.setattr(module, "grants_vote_without_leader", grants_again)

    faults = Faults(drop=0.02, max_delay_ms=150, crash=0.002, partition=0.05)
    check_noticed(monkeypatch, plant, 5, faults)


def test_committing_by_copies_of_an_old_epoch_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def covers(leader: Leader, offset: int) -> bool:
        return offset > (leader.quorum.high_watermark or 0)

    def plant() -> None:
        monkeypatch.setattr(Leader, "_covers_epoch_start", covers)

    faults = Faults(drop=0.05, crash=0.03, partition=0.1, max_flush_ms=50)
    check_noticed(monkeypatch, plant, 5, faults)


def test_a_driver_that_does_not_flush_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def plant() -> None:
        monkeypatch.setattr(MemoryLog, "flush", lambda log: None)

    check_noticed(monkeypatch, plant, 3, Faults(crash=0.03))


def test_counting_unflushed_records_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def plant() -> None:
        monkeypatch.setattr(Leader, "_own_end_offset", lambda leader: leader.end_offset)

    faults = Faults(crash=0.06, max_flush_ms=800, drop=0.02, max_delay_ms=10)
    check_noticed(monkeypatch, plant, 3, faults)
