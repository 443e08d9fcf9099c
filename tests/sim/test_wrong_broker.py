"""Requests to a broker that does not lead: the answer says who does (KIP-951)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.membership.unreachable_brokers import LONGEST_MS
from ottla.model.errors import ErrorCode
from ottla.records.record import build_batch
from ottla.sim.cluster import PORT, SimCluster, host_of
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.sim.test_quorum_of_several import NODES
from tests.sim.test_replication import create, image, started


def produce(cluster: SimCluster, number: int, names: list[str], version: int) -> Any:
    batch = bytes(build_batch([(None, b"value", 1_000, ())]))
    by_name = cluster.node(number).image.topics
    topics = [
        TopicProduceData(
            name=name,
            topic_id=by_name[name].topic_id,
            partition_data=[PartitionProduceData(index=0, records=batch)],
        )
        for name in names
    ]
    return cluster.ask(number, ProduceRequest(acks=-1, timeout=1_000, topic_data=topics), version)


def fetch(cluster: SimCluster, number: int, name: str, version: int) -> Any:
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    topic_id = cluster.node(number).image.topics[name].topic_id
    topic = FetchTopic(topic=name, topic_id=topic_id, partitions=[asked])
    request = FetchRequest(max_wait=0, min_bytes=1, max_bytes=1_000, topics=[topic])
    return cluster.ask(number, request, version)


def waits_for_news(cluster: SimCluster, number: int) -> bool:
    fetchers = cluster.node(number).replica_fetchers
    return fetchers is not None and bool(fetchers.unreachable)


def endpoints(response: Any) -> list[tuple[int, str, int]]:
    return [(each.node_id, each.host, each.port) for each in response.node_endpoints]


@pytest.mark.parametrize("version", [9, 10, 12, 13])
def test_produce_names_the_leader(version: int) -> None:
    cluster = started(1)
    create(cluster, "t")
    leader = image(cluster, 1, "t").leader
    other = next(n for n in NODES if n != leader)
    response = produce(cluster, other, ["t"], version)
    (partition,) = response.responses[0].partition_responses
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    named = partition.current_leader.leader_id, partition.current_leader.leader_epoch
    if version < 10:
        assert (named, endpoints(response)) == ((-1, -1), [])
    else:
        assert named == (leader, image(cluster, other, "t").leader_epoch)
        assert endpoints(response) == [(leader, host_of(leader), PORT)]


def test_only_refused_partitions_have_a_leader_in_the_answer() -> None:
    cluster = started(2)
    names = [f"t{number}" for number in range(6)]
    for name in names:
        create(cluster, name, replicas=1)
    response = produce(cluster, 1, names, 12)
    leaders = {name: image(cluster, 1, name).leader for name in names}
    assert 1 in leaders.values()
    assert set(leaders.values()) != {1}
    for topic in response.responses:
        (partition,) = topic.partition_responses
        led_here = leaders[topic.name] == 1
        assert (partition.error_code == ErrorCode.NONE) is led_here
        assert partition.current_leader.leader_id == (-1 if led_here else leaders[topic.name])
    assert {each[0] for each in endpoints(response)} == set(leaders.values()) - {1}


@pytest.mark.parametrize("version", [15, 16, 17])
def test_fetch_names_the_leader(version: int) -> None:
    cluster = started(1)
    create(cluster, "t", replicas=1)
    leader = image(cluster, 1, "t").leader
    other = next(n for n in NODES if n != leader)
    response = fetch(cluster, other, "t", version)
    (partition,) = response.responses[0].partitions
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    named = partition.current_leader.leader_id, partition.current_leader.leader_epoch
    if version < 16:
        assert (named, endpoints(response)) == ((-1, -1), [])
    else:
        assert named == (leader, image(cluster, other, "t").leader_epoch)
        assert endpoints(response) == [(leader, host_of(leader), PORT)]


@pytest.mark.parametrize("seed", range(3))
def test_metadata_waits_for_the_new_leader(seed: int) -> None:
    cluster = started(seed)
    create(cluster, "t")
    cluster.run_for(1_000)
    leader = image(cluster, 1, "t").leader
    others = [n for n in NODES if n != leader]
    cluster.kill(leader)
    # The active controller may fence the leader before its own connection is closed.
    cluster.run_until(lambda: any(waits_for_news(cluster, n) for n in others))
    other = next(n for n in others if waits_for_news(cluster, n))
    assert image(cluster, other, "t").leader == leader
    asked = MetadataRequestTopic(name="t")
    began_ms = cluster.timeline.now_ms
    response: Any = cluster.ask(other, MetadataRequest(topics=[asked]), 12)
    (partition,) = response.topics[0].partitions
    waited_ms = cluster.timeline.now_ms - began_ms
    assert waited_ms > 0
    if waited_ms < LONGEST_MS:
        assert partition.error_code == ErrorCode.NONE
        assert partition.leader_id not in (-1, leader)
    assert waited_ms < LONGEST_MS + 200
