from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.listeners import Endpoint
from ottla.controller.brokers import lead_anew, register_broker, take_lead
from ottla.controller.eligible_leaders import begin_cluster
from ottla.controller.producer_ids import allocate_producer_ids
from ottla.controller.topics import NewTopic
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import (
    NO_LEADER,
    FeatureLevelRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
)
from ottla.model.config_resources import ResourceType
from ottla.model.errors import ApiError
from ottla.ports import Random
from ottla.wire.message import Message
from tests.support.decisions import create_topics

Apply = Callable[[MetadataImage, list[Message]], None]
Brokers = Callable[..., MetadataImage]


def test_a_cluster_begins_once(brokers: Brokers, apply: Apply) -> None:
    image = brokers(0)
    config = BrokerConfig({"min.insync.replicas": "2"})
    apply(image, begin_cluster(image, config))
    assert image.features == {
        "metadata.version": 25,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "transaction.version": 2,
    }
    assert image.config_of(ResourceType.BROKER, "") == {"min.insync.replicas": "2"}
    assert begin_cluster(image, config) == []


def test_a_cluster_keeps_its_levels_at_a_start(brokers: Brokers, apply: Apply) -> None:
    image = brokers(0)
    apply(image, [FeatureLevelRecord(name="metadata.version", feature_level=21)])
    assert begin_cluster(image, BrokerConfig()) == []


def test_a_registered_broker_is_active(brokers: Brokers, apply: Apply) -> None:
    image = brokers(0)
    endpoints = [Endpoint("PLAINTEXT", "localhost", 9092), Endpoint("TLS", "h", 1, "SSL")]
    apply(
        image,
        register_broker(
            broker_id=3,
            broker_epoch=9,
            incarnation_id=b"i" * 16,
            endpoints=endpoints,
            rack="r",
            log_dirs=[b"d" * 16],
        ),
    )
    broker = image.brokers[3]
    assert broker.active
    assert broker.endpoints == tuple(endpoints)
    assert (broker.broker_epoch, broker.rack, broker.log_dirs) == (9, "r", (b"d" * 16,))


def test_leading_anew_begins_epochs(
    brokers: Callable[..., MetadataImage], random: Random, apply: Apply
) -> None:
    image = brokers(2)
    apply(image, create_topics(image, BrokerConfig(), random, [NewTopic("a", 4, 2)]).records)
    led = [p.partition_id for p in image.topics["a"].partitions if p.leader == 1]
    apply(image, lead_anew(image, 1))
    epochs = {p.partition_id: p.leader_epoch for p in image.topics["a"].partitions}
    assert epochs == {index: int(index in led) for index in range(4)}
    assert [p.partition_id for p in image.topics["a"].partitions if p.leader == 1] == led


def test_partitions_without_a_leader_are_led_by_who_has_them_completely(
    brokers: Callable[..., MetadataImage], random: Random, apply: Apply
) -> None:
    image = brokers(2)
    topics = [NewTopic("mine", assignments=[(0, [1])]), NewTopic("both", assignments=[(0, [1, 2])])]
    apply(image, create_topics(image, BrokerConfig(), random, topics).records)
    abandoned: list[Message] = [
        PartitionChangeRecord(topic_id=topic.topic_id, partition_id=0, leader=NO_LEADER, isr=[2])
        for topic in image.topics.values()
    ]
    apply(image, abandoned)
    apply(image, take_lead(image, 1))
    assert image.topics["mine"].partitions[0].leader == 1
    assert image.topics["mine"].partitions[0].isr == (1,)
    assert image.topics["both"].partitions[0].leader == NO_LEADER
    apply(image, take_lead(image, 2))
    assert image.topics["both"].partitions[0].leader == 2


def test_a_leader_of_all_replicas_is_in_sync_and_no_more_an_eligible_one(
    brokers: Brokers, random: Random, apply: Apply
) -> None:
    image = brokers(1)
    apply(image, create_topics(image, BrokerConfig(), random, [NewTopic("a", 1, 1)]).records)
    change = PartitionChangeRecord(
        partition_id=0,
        topic_id=image.topics["a"].topic_id,
        leader=NO_LEADER,
        isr=[],
        eligible_leader_replicas=[1],
        last_known_elr=[1],
    )
    apply(image, [change])  # as Apache Kafka leaves a partition when it is shut down
    apply(image, take_lead(image, 1))
    partition = image.topics["a"].partitions[0]
    assert (partition.leader, partition.isr) == (1, (1,))
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())


def test_producer_ids_come_in_blocks(brokers: Brokers, apply: Apply) -> None:
    image = brokers(0)
    for first in (0, 1000, 2000):
        decision = allocate_producer_ids(image, 1, 7)
        assert decision.results == [(first, 1000)]
        assert decision.records == [
            ProducerIdsRecord(broker_id=1, broker_epoch=7, next_producer_id=first + 1000)
        ]
        apply(image, decision.records)


def test_producer_ids_end(brokers: Brokers, apply: Apply) -> None:
    image = brokers(0)
    apply(image, [ProducerIdsRecord(next_producer_id=2**63 - 1)])
    with pytest.raises(ApiError, match="All producer ids"):
        allocate_producer_ids(image, 1, 7)
