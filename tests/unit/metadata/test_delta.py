"""What a delta knows about its changes, and what images share."""

from __future__ import annotations

import pytest

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import (
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from ottla.metadata.serde import MetadataError
from ottla.model.config_resources import ResourceType
from ottla.wire.message import Message

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


def topic(topic_id: bytes, partitions: int = 1, name: str = "") -> list[Message]:
    name = name or topic_id[:1].decode()
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *(partition(topic_id, index) for index in range(partitions)),
    ]


def partition(topic_id: bytes, index: int) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0
    )


def setting(name: str, value: str | None, topic: str = "a") -> ConfigRecord:
    return ConfigRecord(resource_type=2, resource_name=topic, name=name, value=value)


@pytest.fixture
def image() -> MetadataImage:
    """Return topics a and b of two partitions, and a setting of each."""
    records = [*topic(A, 2), *topic(B, 2), setting("x", "1"), setting("x", "2", "b")]
    return MetadataDelta(MetadataImage("cluster")).replay_all(records).apply(7, 1)


def test_it_knows_the_topics_that_come_and_go(image: MetadataImage) -> None:
    delta = MetadataDelta(image).replay_all([*topic(C), RemoveTopicRecord(topic_id=A)])
    assert delta.topics.created() == ["c"]
    assert list(delta.topics.changed) == [C]
    assert delta.topics.deleted == {A: image.topics["a"]}
    assert delta.configs.changed == {(ResourceType.TOPIC, "a"): {}}
    assert list(delta.apply().topics) == ["b", "c"]


def test_it_knows_old_and_new_partitions(image: MetadataImage) -> None:
    change = PartitionChangeRecord(partition_id=1, topic_id=A, leader=-1)
    delta = MetadataDelta(image).replay_all([change, change, partition(A, 2)])
    (changed,) = delta.topics.changed.values()
    assert changed.old is image.topics["a"]
    assert changed.has_new_partitions
    assert list(changed.partitions) == [1, 2]
    assert changed.old_partition(1) == image.topics["a"].partitions[1]
    assert (changed.partitions[1].leader, changed.partitions[1].leader_epoch) == (-1, 2)
    assert changed.old_partition(2) is None
    after = delta.apply().topics["a"]
    assert after.partitions == (image.topics["a"].partitions[0], *changed.partitions.values())
    assert delta.topics.created() == []


def test_a_topic_that_came_and_went_leaves_no_trace(image: MetadataImage) -> None:
    records = [*topic(C), setting("x", "1", "c"), RemoveTopicRecord(topic_id=C)]
    delta = MetadataDelta(image).replay_all(records)
    assert not delta.topics.changed
    assert not delta.topics.deleted
    assert delta.topics.created() == []
    assert delta.apply() == image


def test_a_topic_may_come_again_under_its_name(image: MetadataImage) -> None:
    records = [RemoveTopicRecord(topic_id=A), *topic(C, 1, "a"), setting("y", "1")]
    delta = MetadataDelta(image).replay_all(records)
    assert list(delta.topics.deleted) == [A]
    assert delta.topics.created() == ["a"]
    after = delta.apply()
    assert after.topics["a"].topic_id == C
    assert list(after.topics_by_id) == [B, C]
    assert after.topic_config("a") == {"y": "1"}
    with pytest.raises(MetadataError, match="no topic has the id"):
        MetadataDelta(after).replay(partition(A, 0))


def test_it_knows_whose_settings_changed(image: MetadataImage) -> None:
    group = ConfigRecord(resource_type=32, resource_name="g", name="x", value="1")
    delta = MetadataDelta(image).replay_all([setting("y", "1"), setting("x", None), group])
    assert delta.configs.changed == {(2, "a"): {"y": "1"}, (32, "g"): {"x": "1"}}
    assert delta.configs.changed_names(ResourceType.TOPIC) == ["a"]
    assert image.topic_config("a") == {"x": "1"}


def test_it_knows_brokers_controllers_and_features(image: MetadataImage) -> None:
    records = [
        RegisterBrokerRecord(broker_id=1),
        RegisterBrokerRecord(broker_id=2),
        UnregisterBrokerRecord(broker_id=1),
        RegisterControllerRecord(controller_id=3),
        FeatureLevelRecord(name="f", feature_level=2),
    ]
    delta = MetadataDelta(image).replay_all(records)
    assert delta.brokers.changed[1] is None
    assert delta.features.changed == {"f": 2}
    after = delta.apply(9, 2)
    assert (list(after.brokers), list(after.controllers), after.features) == ([2], [3], {"f": 2})
    assert (after.end_offset, after.epoch) == (9, 2)


@pytest.mark.parametrize(("name", "cleared"), [("a", "a"), ("", "ab"), (None, "ab")])
def test_eligible_leader_replicas_are_forgotten(
    image: MetadataImage, name: str | None, cleared: str
) -> None:
    changes = [
        PartitionChangeRecord(
            partition_id=1, topic_id=topic_id, eligible_leader_replicas=[1], last_known_elr=[2]
        )
        for topic_id in (A, B)
    ]
    before = MetadataDelta(image).replay_all(changes).apply()
    after = MetadataDelta(before).replay_all([ClearElrRecord(topic_name=name)]).apply()
    for each in "ab":
        left = [] if each in cleared else [1]
        assert [*after.topics[each].partitions[1].eligible_leader_replicas] == left
        assert bool(after.topics[each].partitions[1].last_known_elr) == bool(left)
        epochs = [image.topics[each].partitions[1].partition_epoch for image in (before, after)]
        assert epochs[1] - epochs[0] == (each in cleared)
    with pytest.raises(MetadataError, match="there is no topic x"):
        MetadataDelta(image).replay(ClearElrRecord(topic_name="x"))


def test_images_share_what_did_not_change(image: MetadataImage) -> None:
    other = MetadataDelta(image).replay_all([setting("y", "1")]).apply()
    assert other.topics is image.topics
    assert other.configs[2, "b"] is image.configs[2, "b"]
    grown = MetadataDelta(image).replay_all([partition(A, 2)]).apply()
    assert grown.topics["b"] is image.topics["b"]
    assert grown.configs is image.configs
    assert len(image.topics["a"].partitions) == 2
