"""The changes that lead from one image to another, for a node that took over a snapshot."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from ottla.metadata.snapshot import node_records, partition_record
from ottla.model.config_resources import ResourceType
from ottla.wire.message import Message


def difference(old: MetadataImage, new: MetadataImage) -> MetadataDelta:
    """Return a delta of `old` that makes `new`, with nothing in it that is the same in both."""
    return MetadataDelta(old).replay_all(_records(old, new))


def _records(old: MetadataImage, new: MetadataImage) -> Iterator[Message]:
    for name in old.features.keys() | new.features.keys():
        if old.features.get(name) != new.features.get(name):
            yield FeatureLevelRecord(name=name, feature_level=new.features.get(name, 0))
    yield from _nodes(old, new)
    for topic_id in old.topics_by_id.keys() - new.topics_by_id.keys():
        yield RemoveTopicRecord(topic_id=topic_id)
    for topic_id, topic in new.topics_by_id.items():
        yield from _topic(old.topics_by_id.get(topic_id), topic)
    yield from _configs(old, new)
    if old.security or new.security:
        from ottla.metadata.security_delta import security_difference

        yield from security_difference(old, new)
    if old.next_producer_id != new.next_producer_id:
        yield ProducerIdsRecord(
            broker_id=-1, broker_epoch=-1, next_producer_id=new.next_producer_id
        )


def _nodes(old: MetadataImage, new: MetadataImage) -> Iterator[Message]:
    for broker_id in old.brokers.keys() - new.brokers.keys():
        yield UnregisterBrokerRecord(
            broker_id=broker_id, broker_epoch=old.brokers[broker_id].broker_epoch
        )
    brokers = {i: each for i, each in new.brokers.items() if old.brokers.get(i) != each}
    controllers = {i: e for i, e in new.controllers.items() if old.controllers.get(i) != e}
    yield from node_records(brokers, controllers)


def _topic(old: TopicImage | None, new: TopicImage) -> Iterator[Message]:
    if old is None:
        yield TopicRecord(name=new.name, topic_id=new.topic_id)
    before = () if old is None else old.partitions
    for partition in new.partitions:
        index = partition.partition_id
        if index >= len(before) or before[index] != partition:
            yield partition_record(new.topic_id, partition)


def _configs(old: MetadataImage, new: MetadataImage) -> Iterator[Message]:
    deleted = {topic.name for i, topic in old.topics_by_id.items() if i not in new.topics_by_id}
    for resource in old.configs.keys() | new.configs.keys():
        resource_type, resource_name = resource
        before = old.configs.get(resource, {})
        after = new.configs.get(resource, {})
        if resource_type == ResourceType.TOPIC and resource_name in deleted:
            before = {}  # they went with the topic
        for name in before.keys() | after.keys():
            if before.get(name) != after.get(name):
                yield ConfigRecord(
                    resource_type=resource_type,
                    resource_name=resource_name,
                    name=name,
                    value=after.get(name),
                )
