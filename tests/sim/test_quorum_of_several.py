"""Controllers of several nodes: they elect a leader, follow it, and survive its loss."""

from __future__ import annotations

import pytest

from ottla.controller.quorum.member import QuorumMember
from ottla.controller.quorum_controller import QuorumController
from ottla.metadata.records import ConfigRecord
from ottla.model.errors import ApiError
from ottla.sim.cluster import SimCluster

NODES = (1, 2, 3)


def member(cluster: SimCluster, number: int) -> QuorumMember:
    found = cluster.node(number).controller.member
    assert found is not None
    return found


def active(cluster: SimCluster, *numbers: int) -> int | None:
    """Return the node whose controller is active, None while there is none."""
    found = [number for number in numbers or NODES if member(cluster, number).is_active]
    return found[0] if len(found) == 1 else None


def write(controller: QuorumController, name: str, value: str) -> list[ApiError | None]:
    told: list[ApiError | None] = []
    record = ConfigRecord(resource_type=4, resource_name="", name=name, value=value)
    controller.submit([record], told.append)
    return told


def settings(cluster: SimCluster, number: int) -> dict[str, str]:
    found = dict(cluster.node(number).controller.image.config_of(4, ""))
    found.pop("min.insync.replicas", None)  # a new cluster begins with it
    return found


@pytest.mark.parametrize("seed", range(8))
def test_a_leader_is_elected_and_followed(seed: int) -> None:
    cluster = SimCluster(3, seed, are_one_cluster=True)
    cluster.run_until(lambda: active(cluster) is not None)
    leader = active(cluster)
    assert leader is not None
    told = write(cluster.node(leader).controller, "log.retention.ms", "5")
    cluster.run_until(lambda: bool(told))
    assert told == [None]
    cluster.run_until(lambda: all(settings(cluster, n) == {"log.retention.ms": "5"} for n in NODES))
    leaders = [member(cluster, number).leader for number in NODES]
    assert {known[0] for known in leaders if known is not None} == {leader}


@pytest.mark.parametrize("seed", range(8))
def test_another_one_takes_over_with_everything_committed(seed: int) -> None:
    cluster = SimCluster(3, seed, are_one_cluster=True)
    cluster.run_until(lambda: active(cluster) is not None)
    first = active(cluster)
    assert first is not None
    told = write(cluster.node(first).controller, "log.retention.ms", "5")
    cluster.run_until(lambda: told == [None])
    cluster.kill(first)
    others = [n for n in NODES if n != first]
    cluster.run_until(lambda: active(cluster, *others) is not None)
    second = active(cluster, *others)
    assert second is not None
    assert settings(cluster, second) == {"log.retention.ms": "5"}
    told = write(cluster.node(second).controller, "log.retention.ms", "6")
    cluster.run_until(lambda: told == [None])
    cluster.start(first)
    cluster.run_until(lambda: settings(cluster, first) == {"log.retention.ms": "6"})
    assert active(cluster) == second


@pytest.mark.parametrize("seed", range(8))
def test_a_leader_that_is_cut_off_writes_nothing(seed: int) -> None:
    cluster = SimCluster(3, seed, are_one_cluster=True)
    cluster.run_until(lambda: active(cluster) is not None)
    first = active(cluster)
    assert first is not None
    others = [n for n in NODES if n != first]
    for other in others:
        cluster.cut(first, other)
    refused = write(cluster.node(first).controller, "log.retention.ms", "1")
    cluster.run_until(lambda: active(cluster, *others) is not None)
    second = active(cluster, *others)
    assert second is not None
    told = write(cluster.node(second).controller, "log.retention.ms", "2")
    cluster.run_until(lambda: told == [None])
    for other in others:
        cluster.heal(first, other)
    cluster.run_until(lambda: settings(cluster, first) == {"log.retention.ms": "2"})
    assert len(refused) == 1
    assert refused[0] is not None
    cluster.run_until(lambda: all(settings(cluster, n) == {"log.retention.ms": "2"} for n in NODES))
