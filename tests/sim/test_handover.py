"""A broker stops cleanly: others take over without a pause for those who write with acks=all."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ottla.model.errors import ErrorCode
from ottla.sim.cluster import SimCluster
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.sim.test_membership import unfenced
from tests.sim.test_quorum_of_several import NODES, active
from tests.sim.test_replication import create, image, produce, started

SEEDS = range(8)


def create_led_by(
    cluster: SimCluster, name: str, leader: int, configs: Mapping[str, str] | None = None
) -> None:
    """Create a topic with one partition of three replicas, and its leader."""
    replicas = [leader, *(n for n in NODES if n != leader)]
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)],
        configs=[
            CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ],
    )
    controller = active(cluster)
    assert controller is not None
    response = cluster.ask(controller, CreateTopicsRequest(topics=[topic], timeout=10_000), 7)
    assert [each.error_code for each in response.topics] == [0]  # type: ignore[attr-defined]
    cluster.run_until(lambda: all(name in cluster.node(n).image.topics for n in NODES))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_that_has_handed_over_is_fenced_before_it_stops(seed: int) -> None:
    cluster = started(seed)
    create(cluster, "t", 6)
    controller = active(cluster)
    assert controller is not None
    stopped = next(n for n in NODES if n != controller)
    cluster.stop(stopped)
    cluster.run_until(lambda: not cluster.is_running(stopped))
    image = cluster.node(controller).image
    assert image.brokers[stopped].fenced
    for partition in image.topics["t"].partitions:
        assert partition.leader != stopped
        assert stopped not in partition.isr


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stop_waits_until_the_others_are_in_sync(seed: int) -> None:
    cluster = started(seed)
    for n in NODES:
        create_led_by(cluster, f"t{n}", n, {"min.insync.replicas": "2"})
    cluster.kill(1)
    cluster.run_until(lambda: unfenced(cluster, 3) == {2, 3})
    cluster.start(1)
    cluster.run_until(lambda: unfenced(cluster, 3) == set(NODES))
    cluster.stop(2)
    cluster.run_until(lambda: not cluster.is_running(2))
    cluster.run_until(lambda: unfenced(cluster, 3) == {1, 3})
    for n in NODES:
        assert set(image(cluster, 3, f"t{n}").isr) == {1, 3}


@pytest.mark.parametrize("seed", SEEDS)
def test_followers_come_at_once_to_a_new_partition_of_a_quiet_leader(seed: int) -> None:
    """Their fetches wait for half a second for the quiet partition, and end early."""
    cluster = started(seed)
    create_led_by(cluster, "quiet", 2)
    assert produce(cluster, 2, "quiet", b"1") == 0
    cluster.run_for(2_000)
    create_led_by(cluster, "new", 2)
    leader = cluster.node(2).topics.partition_named("new", 0).as_leader()
    cluster.run_until(lambda: [leader.followers[n].log_end_offset for n in (1, 3)] == [0, 0], 450)
    assert set(image(cluster, 2, "new").isr) == set(NODES)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_that_is_cut_off_sends_writers_away(seed: int) -> None:
    cluster = started(seed)
    create_led_by(cluster, "t", 2)
    assert produce(cluster, 2, "t", b"1") == 0
    for other in (1, 3):
        cluster.cut(2, other)
    began_ms = cluster.timeline.now_ms
    assert produce(cluster, 2, "t", b"2", timeout_ms=60_000) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.timeline.now_ms - began_ms < 30_000
    found = cluster.ask(2, MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
    assert sorted(broker.node_id for broker in found.brokers) == [1, 3]  # type: ignore[attr-defined]
    (topic,) = found.topics  # type: ignore[attr-defined]
    assert topic.partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert topic.partitions[0].leader_id == -1
    for other in (1, 3):
        cluster.heal(2, other)
    cluster.run_until(lambda: unfenced(cluster, 1) == set(NODES))
    leader = image(cluster, 1, "t").leader
    assert produce(cluster, leader, "t", b"3") == 0
