from __future__ import annotations

import pytest

from ottla.config.listeners import Endpoint
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import BrokerImage, MetadataImage, PartitionImage
from ottla.metadata.records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from ottla.metadata.serde import MetadataError
from ottla.model.config_resources import ResourceType
from ottla.wire.message import Message

A, B = b"a" * 16, b"b" * 16


def image_of(*records: Message) -> MetadataImage:
    return after(MetadataImage("cluster"), *records)


def after(image: MetadataImage, *records: Message) -> MetadataImage:
    """Return the image with these records: in one delta, and the same with a delta for each."""
    step = image
    for record in records:
        step = MetadataDelta(step).replay_all([record]).apply()
    assert MetadataDelta(image).replay_all(records).apply() == step
    return step


def partition(topic_id: bytes, index: int) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=[1, 2],
        isr=[1],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[B, B],
    )


def topic_config(name: str, value: str | None, topic: str = "a") -> ConfigRecord:
    return ConfigRecord(resource_type=2, resource_name=topic, name=name, value=value)


def test_a_topic_is_found_by_name_and_id() -> None:
    image = image_of(TopicRecord(name="a", topic_id=A), partition(A, 0), partition(A, 1))
    topic = image.topics["a"]
    assert image.topics_by_id[A] is topic
    assert topic.partitions == tuple(
        PartitionImage(i, (1, 2), (1,), 1, 0, 0, directories=(B, B)) for i in (0, 1)
    )
    assert topic.partitions[0].replicas is topic.partitions[1].replicas


def test_a_change_of_leader_begins_an_epoch() -> None:
    image = image_of(TopicRecord(name="a", topic_id=A), partition(A, 0))
    before = image.topics["a"].partitions[0]
    image = after(image, PartitionChangeRecord(partition_id=0, topic_id=A, leader=2, isr=[2]))
    changed = image.topics["a"].partitions[0]
    assert changed == before._replace(leader=2, isr=(2,), leader_epoch=1, partition_epoch=1)
    assert before.leader == 1


def test_a_change_of_the_isr_begins_none() -> None:
    image = image_of(TopicRecord(name="a", topic_id=A), partition(A, 0))
    image = after(image, PartitionChangeRecord(partition_id=0, topic_id=A, isr=[1, 2]))
    changed = image.topics["a"].partitions[0]
    assert (changed.isr, changed.leader_epoch, changed.partition_epoch) == ((1, 2), 0, 1)


def test_all_of_a_partition_can_change() -> None:
    image = image_of(TopicRecord(name="a", topic_id=A), partition(A, 0))
    image = after(
        image,
        PartitionChangeRecord(
            partition_id=0,
            topic_id=A,
            replicas=[1, 2, 3],
            adding_replicas=[3],
            removing_replicas=[2],
            leader_recovery_state=1,
            directories=[A, A, A],
            eligible_leader_replicas=[2],
            last_known_elr=[1],
        ),
    )
    assert image.topics["a"].partitions[0] == PartitionImage(
        0, (1, 2, 3), (1,), 1, 0, 1, (A, A, A), (2,), (3,), (2,), (1,), 1
    )


def test_a_removed_topic_takes_its_settings_along() -> None:
    image = image_of(
        TopicRecord(name="a", topic_id=A),
        topic_config("retention.ms", "1"),
        RemoveTopicRecord(topic_id=A),
    )
    assert not image.topics
    assert not image.topics_by_id
    assert image.topic_config("a") == {}


def test_settings_are_set_and_taken_back() -> None:
    image = image_of(
        topic_config("retention.ms", "1"),
        topic_config("segment.ms", "2"),
        topic_config("retention.ms", "3"),
    )
    seen = image.topic_config("a")
    assert seen == {"retention.ms": "3", "segment.ms": "2"}
    image = after(image, topic_config("segment.ms", None))
    assert image.config_of(ResourceType.TOPIC, "a") == {"retention.ms": "3"}
    assert seen == {"retention.ms": "3", "segment.ms": "2"}
    image = after(image, topic_config("retention.ms", None))
    assert image.configs == {}


def test_names_that_differ_in_dots_collide() -> None:
    image = image_of(TopicRecord(name="a.b", topic_id=A))
    assert image.colliding_topic("a_b") == "a.b"
    assert image.colliding_topic("a.b") is None
    assert image.colliding_topic("a-b") is None
    image = after(image, RemoveTopicRecord(topic_id=A))
    assert image.colliding_topic("a_b") is None


def test_brokers_register_change_and_leave() -> None:
    image = image_of(
        RegisterBrokerRecord(
            broker_id=1,
            broker_epoch=7,
            incarnation_id=A,
            end_points=[BrokerEndpoint(name="X", host="h", port=1, security_protocol=3)],
            rack="r",
            log_dirs=[B],
        )
    )
    endpoint = Endpoint("X", "h", 1, "SASL_SSL")
    assert image.brokers[1] == BrokerImage(1, 7, A, (endpoint,), "r", True, False, (B,))
    assert not image.brokers[1].active
    image = after(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=-1))
    assert image.brokers[1].active
    assert image.brokers[1].log_dirs == (B,)
    image = after(
        image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, in_controlled_shutdown=1)
    )
    assert not image.brokers[1].active
    image = after(image, UnregisterBrokerRecord(broker_id=1, broker_epoch=7))
    assert image.brokers == {}


def test_features_and_producer_ids() -> None:
    image = image_of(
        FeatureLevelRecord(name="metadata.version", feature_level=25),
        FeatureLevelRecord(name="x", feature_level=1),
        FeatureLevelRecord(name="x", feature_level=0),
        ProducerIdsRecord(broker_id=1, next_producer_id=1000),
        NoOpRecord(),
    )
    assert image.features == {"metadata.version": 25}
    assert image.next_producer_id == 1000


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([TopicRecord(name="a", topic_id=A), TopicRecord(name="a", topic_id=B)], "created twice"),
        ([TopicRecord(name="a", topic_id=A), TopicRecord(name="b", topic_id=A)], "created twice"),
        ([partition(A, 0)], "no topic has the id"),
        ([RemoveTopicRecord(topic_id=A)], "no topic has the id"),
        ([TopicRecord(name="a", topic_id=A), partition(A, 1)], "does not follow its 0 partitions"),
        (
            [TopicRecord(name="a", topic_id=A), PartitionChangeRecord(topic_id=A, partition_id=0)],
            "a has no partition 0",
        ),
        ([BrokerRegistrationChangeRecord(broker_id=1)], "broker 1 is not registered"),
        ([UnregisterBrokerRecord(broker_id=1)], "broker 1 is not registered"),
        ([BrokerEndpoint()], "cannot apply a BrokerEndpoint"),
    ],
)
def test_records_that_contradict_the_image_are_refused(
    records: list[Message], message: str
) -> None:
    with pytest.raises(MetadataError, match=message):
        image_of(*records)
