"""What changes between two images: records are replayed into a delta, which makes the next image.

Publishers act on the delta, so each of them does work for what changed and not for all there
is. A delta costs what it changes, plus copies of the dicts it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.metadata.brokers_delta import BrokersDelta
from ottla.metadata.configs_delta import ConfigsDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    ZkMigrationStateRecord,
)
from ottla.metadata.serde import MetadataError
from ottla.metadata.topics_delta import TopicsDelta
from ottla.wire.message import Message


class FeaturesDelta:
    """Features whose level changed."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self.changed: dict[str, int] = {}
        """The new level of each; 0 for a feature that is gone."""

    def set(self, record: FeatureLevelRecord) -> None:
        self.changed[record.name] = record.feature_level

    def features(self) -> dict[str, int]:
        """Return all features after the delta."""
        merged = {**self._image.features, **self.changed}
        return {name: level for name, level in merged.items() if level}


class ProducerIdsDelta:
    """The first producer id that no broker has been given."""

    def __init__(self, image: MetadataImage) -> None:
        self.next_producer_id = image.next_producer_id

    def set(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id


class MetadataDelta:
    """Changes since `image`. Call `replay` for each record, then `apply` once."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.configs = ConfigsDelta(image)
        self.topics = TopicsDelta(image, self.configs)
        self.brokers = BrokersDelta(image)
        self.features = FeaturesDelta(image)
        self.producer_ids = ProducerIdsDelta(image)
        self._replay: dict[type[Message], Callable[..., object]] = {
            TopicRecord: self.topics.create,
            RemoveTopicRecord: self.topics.remove,
            PartitionRecord: self.topics.set_partition,
            PartitionChangeRecord: self.topics.change_partition,
            ClearElrRecord: self.topics.clear_elr,
            ConfigRecord: self.configs.set,
            RegisterBrokerRecord: self.brokers.register,
            BrokerRegistrationChangeRecord: self.brokers.change,
            UnregisterBrokerRecord: self.brokers.unregister,
            RegisterControllerRecord: self.brokers.register_controller,
            FeatureLevelRecord: self.features.set,
            ProducerIdsRecord: self.producer_ids.set,
            NoOpRecord: _ignore,
            ZkMigrationStateRecord: _ignore,
        }

    def replay(self, record: Message) -> None:
        """Add one record of the metadata log; MetadataError if it contradicts the image."""
        replay = self._replay.get(type(record))
        if replay is None:
            raise MetadataError(f"cannot apply a {type(record).__name__}")
        replay(record)

    def replay_all(self, records: Iterable[Message]) -> MetadataDelta:
        """Add records in order; returns the delta itself."""
        for record in records:
            self.replay(record)
        return self

    def apply(self, end_offset: int | None = None, epoch: int | None = None) -> MetadataImage:
        """Return the image with all changes, as of an offset of the metadata log."""
        old = self.image
        return self.topics.apply()._replace(
            end_offset=old.end_offset if end_offset is None else end_offset,
            epoch=old.epoch if epoch is None else epoch,
            configs=self.configs.configs() if self.configs.changed else old.configs,
            brokers=self.brokers.brokers(),
            controllers=self.brokers.controllers(),
            features=self.features.features(),
            next_producer_id=self.producer_ids.next_producer_id,
        )


def _ignore(record: Message) -> None:
    """Do nothing: the record does not change the image."""
