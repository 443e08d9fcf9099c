"""What seeds of a whole cluster found, each step by step."""

from __future__ import annotations

import pytest

from ottla.broker.membership.lifecycle import LifeState
from ottla.broker.node import Node
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.records import PartitionRecord, RegisterBrokerRecord, TopicRecord
from ottla.model.errors import ErrorCode
from ottla.replication.partition_leader import PartitionLeader
from ottla.sim.cluster import SimCluster
from ottla.wire.message import Message
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.sim.test_quorum_of_several import NODES, active
from tests.sim.test_replication import create, image, started

SEEDS = range(3)


def leader_of(cluster: SimCluster, number: int, name: str = "t") -> PartitionLeader | None:
    return cluster.node(number).topics.partition_named(name, 0).leader


def follow(node: Node, records: list[Message]) -> None:
    delta = MetadataDelta(node.image).replay_all(records)
    node.image = delta.apply()
    for _ in node.hosted_logs.follow(delta, node.image):
        pass


def test_a_producer_id_is_asked_for_before_the_broker_is_registered() -> None:
    cluster = SimCluster(3, 0, are_one_cluster=True)
    response = cluster.ask(1, InitProducerIdRequest(transactional_id=None), 4)
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # type: ignore[attr-defined]


def test_a_client_that_comes_early_hears_of_brokers_when_there_are_some() -> None:
    """As in Kafka, which takes no requests before. Without brokers clients wait for a long time."""
    cluster = SimCluster(3, 0, are_one_cluster=True)
    response = cluster.ask(1, MetadataRequest(topics=None), 12)
    assert isinstance(response, MetadataResponse)
    assert 1 in [broker.node_id for broker in response.brokers]


def test_a_broker_leads_nothing_by_metadata_from_before_its_registration() -> None:
    """Its image may have an ISR of itself alone; what it committed then would be lost."""
    cluster = SimCluster(3, 0, are_one_cluster=True)
    node = cluster.node(1)
    assert node.lifecycle is not None
    topic_id = b"t" * 16
    partition = PartitionRecord(
        partition_id=0, topic_id=topic_id, replicas=[1, 2, 3], isr=[1], leader=1, leader_epoch=5
    )
    follow(node, [TopicRecord(name="t", topic_id=topic_id), partition])
    assert leader_of(cluster, 1) is None
    registration = RegisterBrokerRecord(
        broker_id=1, incarnation_id=node.lifecycle.incarnation_id, broker_epoch=9
    )
    follow(node, [registration])
    assert leader_of(cluster, 1) is not None


@pytest.mark.parametrize("seed", SEEDS)
def test_followers_join_the_isr_of_a_leader_that_was_started_again(seed: int) -> None:
    """Also without new records, and both of them."""
    cluster = started(seed)
    create(cluster, "t")
    for number in NODES:
        cluster.kill(number)
    for number in NODES:
        cluster.start(number)
    cluster.run_until(lambda: all("t" in cluster.node(n).image.topics for n in NODES))
    cluster.run_until(lambda: all(len(image(cluster, n, "t").isr) == 3 for n in NODES))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_that_comes_back_while_the_controller_changes(seed: int) -> None:
    """The new controller believes that its past life still lives, for a whole session."""
    cluster = started(seed)
    controller = active(cluster)
    assert controller is not None
    victim = next(n for n in NODES if n != controller)
    cluster.lose_power(victim)
    cluster.start(victim)
    refused: list[str] = []
    cluster.node(victim).when_ready(lambda: None, refused.append)
    cluster.run_for(6_000)
    others = [n for n in NODES if n != controller]
    cluster.lose_power(controller)
    cluster.run_until(lambda: active(cluster, *others) is not None)
    lifecycle = cluster.node(victim).lifecycle
    assert lifecycle is not None
    cluster.run_until(lambda: lifecycle.state is LifeState.RUNNING)
    assert refused == []
