"""A quorum that is not given by the settings: it begins by itself, and controllers join it."""

from __future__ import annotations

import pytest

from ottla.model.errors import ErrorCode
from ottla.raft.voter_history import VoterHistory
from ottla.sim.cluster import CONTROLLER_PORT, SimCluster, host_of
from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.sim.test_membership import unfenced
from tests.sim.test_quorum_of_several import NODES, active
from tests.sim.test_replication import started

SERVERS = ",".join(f"{host_of(each)}:{CONTROLLER_PORT}" for each in NODES)
TINY_LOG = {
    "metadata.log.max.record.bytes.between.snapshots": "1",
    "metadata.log.segment.ms": "1",
    "metadata.max.retention.bytes": "1",
}
DYNAMIC = {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": SERVERS}


def voters(cluster: SimCluster, number: int) -> set[int]:
    member = cluster.node(number).controller.member
    assert member is not None
    return set(member.quorum.voters.ids)


def all_vote(cluster: SimCluster) -> bool:
    return all(voters(cluster, number) == set(NODES) for number in NODES)


@pytest.mark.parametrize("seed", range(3))
def test_empty_nodes_make_a_cluster(seed: int) -> None:
    cluster = SimCluster(3, seed, DYNAMIC, are_one_cluster=True)
    cluster.run_until(lambda: all_vote(cluster))
    cluster.run_until(lambda: all(unfenced(cluster, each) == set(NODES) for each in NODES))
    for number in NODES:
        cluster.kill(number)
    for number in NODES:
        cluster.start(number)
    cluster.run_until(lambda: all(unfenced(cluster, each) == set(NODES) for each in NODES))
    assert all_vote(cluster)


def test_no_cluster_begins_while_a_controller_does_not_answer() -> None:
    cluster = SimCluster(3, 7, DYNAMIC, are_one_cluster=True)
    cluster.cut(1, 3)
    cluster.run_for(20_000)
    assert [voters(cluster, number) for number in NODES] == [set(), set(), set()]
    cluster.heal(1, 3)
    cluster.run_until(lambda: all_vote(cluster))


def test_a_controller_whose_disk_fails_as_the_cluster_begins_ends_in_order() -> None:
    """Found by seed 310959: the error was none that a broker knows to end with."""
    cluster = SimCluster(3, 9, DYNAMIC, are_one_cluster=True)
    cluster.cut(1, 3)
    cluster.run_for(5_000)
    (volume,) = cluster.machine(1).faults.volumes
    volume.eio_probability = 1.0
    cluster.heal(1, 3)
    cluster.run_until(lambda: not cluster.is_running(1))
    volume.eio_probability = 0.0
    cluster.start(1)
    cluster.run_until(lambda: all_vote(cluster))


def test_the_first_one_joins_again_on_an_empty_disk() -> None:
    cluster = SimCluster(3, 8, DYNAMIC, are_one_cluster=True)
    cluster.run_until(lambda: all_vote(cluster))
    lost = directory(cluster, 1)
    cluster.kill(1)
    disk = cluster.machine(1).disk
    disk.restart()
    disk.remove_tree("/data")
    disk.make_dirs("/data")
    cluster.start(1)
    cluster.run_until(lambda: all_vote(cluster) and directory(cluster, 2) != lost)
    assert directory(cluster, 1) == directory(cluster, 2) == directory(cluster, 3)


def directory(cluster: SimCluster, number: int) -> bytes | None:
    """Return the directory of voter 1, as a node knows it."""
    member = cluster.node(number).controller.member
    assert member is not None
    voter = member.quorum.voters.get(1)
    return None if voter is None else voter.key.directory_id


def update_kraft_version(cluster: SimCluster, level: int) -> int:
    controller = active(cluster)
    assert controller is not None
    update = FeatureUpdateKey(feature="kraft.version", max_version_level=level, upgrade_type=1)
    request = UpdateFeaturesRequest(timeout=10_000, feature_updates=[update])
    return int(cluster.ask(controller, request, 2).error_code)  # type: ignore[attr-defined]


def kraft_version(cluster: SimCluster, number: int) -> int:
    member = cluster.node(number).controller.member
    assert member is not None
    return member.quorum.kraft_version


def test_a_static_quorum_becomes_a_dynamic_one() -> None:
    cluster = started(9)
    nodes = [cluster.node(number) for number in NODES]
    cluster.run_until(lambda: all(set(each.image.controllers) == set(NODES) for each in nodes))
    assert update_kraft_version(cluster, 2) == ErrorCode.INVALID_UPDATE_VERSION
    assert update_kraft_version(cluster, 1) == 0
    cluster.run_until(lambda: all(kraft_version(cluster, number) == 1 for number in NODES))
    assert update_kraft_version(cluster, 1) == 0
    assert update_kraft_version(cluster, 0) == ErrorCode.INVALID_UPDATE_VERSION
    assert all_vote(cluster)
    assert directory(cluster, 2) == cluster.node(1).hosted_logs.identity.directory_ids[0]
    leader = active(cluster)
    assert leader is not None
    cluster.kill(leader)
    others = [number for number in NODES if number != leader]
    cluster.run_until(lambda: active(cluster, *others) is not None)
    cluster.start(leader)
    cluster.run_until(lambda: all(unfenced(cluster, each) == set(NODES) for each in NODES))
    assert all(kraft_version(cluster, number) == 1 for number in NODES)


def test_the_quorum_forgets_what_the_log_no_longer_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody told the state machine, so it kept every voter set since the start."""
    trimmed: list[int] = []
    trim = VoterHistory.trim

    def watched(history: VoterHistory, start_offset: int) -> None:
        trimmed.append(start_offset)
        trim(history, start_offset)

    monkeypatch.setattr(VoterHistory, "trim", watched)
    cluster = SimCluster(3, 11, DYNAMIC | TINY_LOG, are_one_cluster=True)
    cluster.run_until(lambda: all_vote(cluster))
    cluster.run_until(lambda: len(set(trimmed)) > 1)
    starts = {cluster.node(number).controller.log.log_start_offset for number in NODES}
    assert max(trimmed) in starts
    assert all_vote(cluster)


@pytest.mark.parametrize("joins", [False, True])
def test_a_controller_that_is_not_listed_joins_only_if_told(joins: bool) -> None:
    listed = ",".join(f"{host_of(each)}:{CONTROLLER_PORT}" for each in NODES[:2])
    settings = DYNAMIC | {
        "controller.quorum.bootstrap.servers": listed,
        "controller.quorum.auto.join.enable": str(joins).lower(),
    }
    cluster = SimCluster(3, 10, settings, are_one_cluster=True)
    cluster.run_until(lambda: all(unfenced(cluster, each) == set(NODES) for each in NODES))
    cluster.run_for(5_000)
    expected = set(NODES) if joins else set(NODES[:2])
    assert all(voters(cluster, number) == expected for number in NODES)
