"""Brokers of one cluster: they register, are fenced when they die, and come back."""

from __future__ import annotations

import pytest

from ottla.sim.cluster import SimCluster
from tests.sim.test_quorum_of_several import NODES, active


def unfenced(cluster: SimCluster, number: int) -> set[int]:
    """Return the brokers that are active, as one node knows it."""
    brokers = cluster.node(number).image.brokers.values()
    return {broker.broker_id for broker in brokers if broker.active}


@pytest.mark.parametrize("seed", range(8))
def test_brokers_join(seed: int) -> None:
    cluster = SimCluster(3, seed, are_one_cluster=True)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES))


@pytest.mark.parametrize("seed", range(8))
def test_a_dead_broker_is_fenced_at_once_and_comes_back(seed: int) -> None:
    cluster = SimCluster(3, seed, are_one_cluster=True)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES))
    leader = active(cluster)
    victim = next(n for n in NODES if n != leader)
    others = [n for n in NODES if n != victim]
    cluster.kill(victim)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(others) for n in others), 1_000)
    cluster.start(victim)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES))


@pytest.mark.parametrize("seed", range(8))
def test_a_broker_that_is_cut_off_is_fenced_after_its_session(seed: int) -> None:
    cluster = SimCluster(3, seed, are_one_cluster=True)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES))
    leader = active(cluster)
    victim = next(n for n in NODES if n != leader)
    others = [n for n in NODES if n != victim]
    for other in others:
        cluster.cut(victim, other)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(others) for n in others), 12_000)
    for other in others:
        cluster.heal(victim, other)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES))


@pytest.mark.parametrize("seed", range(8))
def test_a_cluster_that_starts_again_as_a_whole_is_there_soon(seed: int) -> None:
    cluster = SimCluster(3, seed, are_one_cluster=True)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES), 2_500)
    epochs = {n: cluster.node(n).hosted_logs.broker_epoch for n in NODES}
    for n in NODES:
        cluster.kill(n)
    for n in NODES:
        cluster.start(n)
    cluster.run_until(
        lambda: all(
            unfenced(cluster, n) == set(NODES)
            and cluster.node(n).hosted_logs.broker_epoch > epochs[n]
            for n in NODES
        ),
        2_500,
    )


@pytest.mark.parametrize("seed", range(8))
def test_the_others_tell_at_once_that_one_may_stop(seed: int) -> None:
    cluster = SimCluster(3, seed, are_one_cluster=True)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES))
    left: list[bool] = []
    cluster.node(2).leave(lambda: left.append(True))
    cluster.run_until(lambda: bool(left), 500)


def test_the_death_of_the_active_controller_is_noticed_at_once() -> None:
    gaps_ms = [_gap_after_the_death_of_the_active_controller(seed) for seed in range(12)]
    # Simulated disks take up to 200 ms to sync, and an election syncs a few times. Two voters that
    # stand at the same time do not split the votes: one gives way.
    assert max(gaps_ms) < 2_500
    assert sum(gap_ms < 1_500 for gap_ms in gaps_ms) >= 11


def _gap_after_the_death_of_the_active_controller(seed: int) -> float:
    cluster = SimCluster(3, seed, are_one_cluster=True)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES))
    cluster.run_for(3_000)
    victim = active(cluster)
    assert victim is not None
    others = [n for n in NODES if n != victim]
    killed_ms = cluster.timeline.now_ms
    cluster.kill(victim)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(others) for n in others))
    gap_ms = cluster.timeline.now_ms - killed_ms
    cluster.start(victim)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES))
    return gap_ms


@pytest.mark.parametrize("seed", range(8))
def test_a_broker_is_watched_by_a_new_controller_from_the_beginning(seed: int) -> None:
    cluster = SimCluster(5, seed, are_one_cluster=True)
    nodes = range(1, 6)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(nodes) for n in nodes))
    first = active(cluster, *nodes)
    assert first is not None
    cluster.kill(first)
    others = [n for n in nodes if n != first]
    cluster.run_until(lambda: active(cluster, *others) is not None)
    second = active(cluster, *others)
    cluster.run_for(300)
    victim = next(n for n in others if n != second)
    rest = {n for n in others if n != victim}
    cluster.kill(victim)
    cluster.run_until(lambda: all(unfenced(cluster, n) == rest for n in rest), 1_000)


@pytest.mark.parametrize("seed", range(8))
def test_a_broken_connection_to_the_controller_fences_nobody(seed: int) -> None:
    cluster = SimCluster(3, seed, are_one_cluster=True)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES))
    cluster.run_for(3_000)
    leader = active(cluster)
    assert leader is not None
    other = next(n for n in NODES if n != leader)
    for _ in range(10):
        cluster.drop(leader, other)
        for _ in range(40):
            cluster.run_for(5)
            assert unfenced(cluster, leader) == set(NODES)
    assert active(cluster) == leader
