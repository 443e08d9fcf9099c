"""Log directories in a cluster: the controller knows them, and a lost one moves its leaders."""

from __future__ import annotations

from errno import EIO

import pytest

from ottla.log.damage import DamagedLog
from ottla.log.store.log_store import parent_of
from ottla.metadata.image import PartitionImage
from ottla.model.ids import LOST_DIRECTORY, TopicPartition
from ottla.sim.cluster import SimCluster
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tests.sim.test_quorum_of_several import NODES
from tests.sim.test_replication import create, log_bytes, produce, started

PARTITIONS = 6


def with_directories(seed: int) -> SimCluster:
    return started(seed, {"log.dirs": "/data,/more"})


def partitions(cluster: SimCluster, number: int) -> tuple[PartitionImage, ...]:
    return cluster.node(number).image.topics["t"].partitions


def told_directory(cluster: SimCluster, number: int, index: int) -> bytes:
    partition = partitions(cluster, number)[index]
    return partition.directories[partition.replicas.index(number)]


def actual_directory(cluster: SimCluster, number: int, index: int) -> bytes:
    node = cluster.node(number)
    log = node.topics.partition_named("t", index).online_log()
    return node.hosted_logs.directory_id(parent_of(log))


def all_told(cluster: SimCluster) -> bool:
    return all(
        told_directory(cluster, number, index) == actual_directory(cluster, number, index)
        for number in NODES
        for index in range(PARTITIONS)
    )


def lose_second_directory(cluster: SimCluster, number: int) -> set[int]:
    """Take a directory offline that has no metadata; return the partitions that were in it."""
    node = cluster.node(number)
    path = node.config.storage.log_dirs[1]
    lost = {
        index
        for index in range(PARTITIONS)
        if parent_of(node.topics.partition_named("t", index).online_log()) == path
    }
    node.store.take_offline(path, OSError(EIO, "on purpose"))
    return lost


@pytest.mark.parametrize("seed", range(3))
def test_the_controller_knows_where_each_replica_is(seed: int) -> None:
    cluster = with_directories(seed)
    create(cluster, "t", PARTITIONS)
    cluster.run_until(lambda: all_told(cluster))
    used = {told_directory(cluster, 1, index) for index in range(PARTITIONS)}
    assert len(used) == len(cluster.node(1).config.storage.log_dirs) > 1


@pytest.mark.parametrize("seed", range(3))
def test_a_lost_directory_moves_only_its_leaders(seed: int) -> None:
    cluster = with_directories(seed)
    create(cluster, "t", PARTITIONS)
    cluster.run_until(lambda: all_told(cluster))
    number = 1 + seed
    other = next(each for each in NODES if each != number)
    leaders = [partition.leader for partition in partitions(cluster, other)]
    lost = lose_second_directory(cluster, number)
    assert 0 < len(lost) < PARTITIONS
    begun_ms = cluster.node(other).clock.monotonic_ms()
    cluster.run_until(
        lambda: all(number not in partitions(cluster, other)[index].isr for index in lost)
    )
    assert cluster.node(other).clock.monotonic_ms() - begun_ms < 1_000
    for index, partition in enumerate(partitions(cluster, other)):
        if index in lost:
            assert partition.leader in set(NODES) - {number}
        else:
            assert partition.leader == leaders[index]
            assert set(partition.isr) == set(NODES)
    assert not cluster.node(other).image.brokers[number].fenced
    node = cluster.node(number)
    usable = tuple(node.hosted_logs.online_directory_ids)
    cluster.run_until(lambda: node.image.brokers[number].log_dirs == usable)


def test_a_directory_that_is_back_is_in_sync_again() -> None:
    cluster = with_directories(4)
    create(cluster, "t", PARTITIONS)
    cluster.run_until(lambda: all_told(cluster))
    lost = lose_second_directory(cluster, 2)
    cluster.run_until(lambda: all(2 not in partitions(cluster, 1)[each].isr for each in lost))
    cluster.kill(2)
    cluster.start(2)
    cluster.run_until(
        lambda: all(set(each.isr) == set(NODES) for each in partitions(cluster, 1)),
    )


def test_a_single_lost_log_moves_its_leader() -> None:
    cluster = with_directories(5)
    create(cluster, "t", PARTITIONS)
    cluster.run_until(lambda: all_told(cluster))
    index = next(each.partition_id for each in partitions(cluster, 1) if each.leader == 3)
    node = cluster.node(3)
    log = node.topics.partition_named("t", index).online_log()
    node.store.handle_error(log, DamagedLog(log.directory, "and damaged on purpose"))
    cluster.run_until(lambda: partitions(cluster, 1)[index].leader in (1, 2))
    cluster.run_until(lambda: told_directory(cluster, 3, index) == LOST_DIRECTORY)
    assert TopicPartition("t", index) in node.store.offline_partitions
    others = [each for each in partitions(cluster, 1) if each.partition_id != index]
    assert all(set(each.isr) == set(NODES) for each in others)


@pytest.mark.parametrize("number", NODES)
def test_a_replica_moves_to_another_directory(number: int) -> None:
    cluster = with_directories(6)
    create(cluster, "t", PARTITIONS)
    cluster.run_until(lambda: all_told(cluster))
    leader = partitions(cluster, 1)[0].leader
    for value in (b"one", b"two"):
        assert produce(cluster, leader, "t", value) == 0
    node = cluster.node(number)
    before = actual_directory(cluster, number, 0)
    (path,) = (
        each
        for each in node.config.storage.log_dirs
        if node.hosted_logs.directory_id(each) != before
    )
    other = node.hosted_logs.directory_id(path)
    topic = AlterReplicaLogDirTopic(name="t", partitions=[0])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])
    response = cluster.ask(number, request, 2)
    assert response.results[0].partitions[0].error_code == 0  # type: ignore[attr-defined]
    cluster.run_until(
        lambda: actual_directory(cluster, number, 0) == told_directory(cluster, number, 0) == other
    )
    assert produce(cluster, leader, "t", b"three") == 0
    expected = log_bytes(cluster, leader, "t")
    assert b"three" in expected
    cluster.run_until(lambda: all(log_bytes(cluster, n, "t") == expected for n in NODES))
    assert partitions(cluster, 1)[0].leader == leader
