"""Partitions with three replicas: followers follow, and the loss of a leader loses nothing."""

from __future__ import annotations

import pytest

from ottla.metadata.image import PartitionImage
from ottla.records.record import build_batch
from ottla.sim.cluster import SimCluster
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.sim.test_membership import unfenced
from tests.sim.test_quorum_of_several import NODES, active


def started(seed: int, properties: dict[str, str] | None = None) -> SimCluster:
    cluster = SimCluster(3, seed, properties, are_one_cluster=True)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES))
    return cluster


def create(cluster: SimCluster, name: str, partitions: int = 1, replicas: int = 3) -> None:
    controller = active(cluster)
    assert controller is not None
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
    response = cluster.ask(controller, CreateTopicsRequest(topics=[topic], timeout=10_000), 7)
    assert [each.error_code for each in response.topics] == [0]  # type: ignore[attr-defined]
    cluster.run_until(lambda: all(name in cluster.node(n).image.topics for n in NODES))


def image(cluster: SimCluster, number: int, name: str) -> PartitionImage:
    return cluster.node(number).image.topics[name].partitions[0]


def produce(
    cluster: SimCluster, number: int, name: str, value: bytes, timeout_ms: int = 10_000
) -> int:
    batch = bytes(build_batch([(None, value, 1_000, ())]))
    data = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=-1, timeout=timeout_ms, topic_data=[TopicProduceData(name=name, partition_data=[data])]
    )
    response = cluster.ask(number, request, 9)
    (topic,) = response.responses  # type: ignore[attr-defined]
    (partition,) = topic.partition_responses
    return int(partition.error_code)


def log_bytes(cluster: SimCluster, number: int, name: str) -> bytes:
    log = cluster.node(number).topics.partition_named(name, 0).log
    assert log is not None
    piece = log.read(0, 1 << 20, log.high_watermark, at_least_one=True)
    return b"" if piece is None else piece.file.pread(piece.length, piece.position)


@pytest.mark.parametrize("seed", range(5))
def test_followers_have_what_the_leader_has(seed: int) -> None:
    cluster = started(seed)
    create(cluster, "t")
    leader = image(cluster, 1, "t").leader
    for number in range(5):
        assert produce(cluster, leader, "t", b"%d" % number) == 0
    expected = log_bytes(cluster, leader, "t")
    assert len(expected) > 300
    cluster.run_until(lambda: all(log_bytes(cluster, n, "t") == expected for n in NODES))
    assert set(image(cluster, leader, "t").isr) == set(NODES)


@pytest.mark.parametrize("seed", range(5))
def test_another_broker_leads_when_the_leader_dies(seed: int) -> None:
    cluster = started(seed)
    create(cluster, "t")
    first = image(cluster, 1, "t").leader
    assert produce(cluster, first, "t", b"one") == 0
    cluster.kill(first)
    others = [n for n in NODES if n != first]
    cluster.run_until(lambda: all(image(cluster, n, "t").leader in others for n in others))
    second = image(cluster, others[0], "t").leader
    cluster.run_until(
        lambda: cluster.node(second).topics.partition_named("t", 0).leader is not None
    )
    assert produce(cluster, second, "t", b"two") == 0
    cluster.start(first)
    cluster.run_until(lambda: set(image(cluster, second, "t").isr) == set(NODES))
    assert produce(cluster, second, "t", b"three") == 0
    expected = log_bytes(cluster, second, "t")
    cluster.run_until(lambda: all(log_bytes(cluster, n, "t") == expected for n in NODES))
    assert [value in expected for value in (b"one", b"two", b"three")] == [True] * 3


def test_the_leader_learns_the_new_epoch_of_a_broker_that_registers_again() -> None:
    cluster = started(seed=1)
    create(cluster, "t")
    leader = image(cluster, 1, "t").leader
    follower = next(number for number in NODES if number != leader)
    lifecycle, loop = cluster.node(follower).lifecycle, cluster.machine(follower).loop
    assert lifecycle is not None
    assert loop is not None
    before = lifecycle.epoch
    loop.call(lifecycle._register)

    def known_epoch() -> int:
        partition = cluster.node(leader).topics.partition_named("t", 0)
        return partition.as_leader().followers[follower].broker_epoch

    cluster.run_until(lambda: lifecycle.epoch > before)
    cluster.run_until(lambda: known_epoch() == lifecycle.epoch)


@pytest.mark.parametrize("seed", range(3))
def test_a_broker_that_comes_back_fetches_only_with_metadata_of_its_present_life(seed: int) -> None:
    cluster = started(seed)
    create(cluster, "t", partitions=6)
    leader = image(cluster, 1, "t").leader
    follower = next(n for n in NODES if n not in (active(cluster), leader))
    cluster.kill(follower)
    cluster.run_until(lambda: len(image(cluster, leader, "t").isr) == len(NODES) - 1)
    cluster.start(follower)

    def is_in_sync() -> bool:
        node = cluster.node(follower)
        fetchers = node.replica_fetchers
        assert fetchers is None or not len(fetchers) or node.hosted_logs.is_current
        return len(image(cluster, leader, "t").isr) == len(NODES)

    cluster.run_until(is_in_sync)
    fetchers = cluster.node(follower).replica_fetchers
    assert fetchers is not None
    assert len(fetchers)
