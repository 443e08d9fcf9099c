"""What changes between two images: records are replayed into a delta, which makes the next image.

Publishers act on the delta, so each of them does work for what changed and not for all there
is. A delta costs what it changes, plus copies of the dicts it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

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
from ottla.metadata.topics_delta import TopicsDelta
from ottla.model.steps import ITEMS_A_STEP, Steps, run_to_end
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.metadata.security_delta import SecurityDelta


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
        self.security: SecurityDelta | None = None
        """Made when there is something to change."""
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
        """Add one record of the metadata log; raise MetadataError if it contradicts the image."""
        replay = self._replay.get(type(record))
        if replay is None:
            self._security().replay(record)
        else:
            replay(record)

    def replay_in_steps(self, records: Iterable[Message]) -> Steps[None]:
        """Add records in order. One may be about all partitions."""
        for number, record in enumerate(records, 1):
            if isinstance(record, ClearElrRecord):
                yield from self.topics.clear_elr_in_steps(record)
            else:
                self.replay(record)
            if not number % ITEMS_A_STEP:
                yield

    def _security(self) -> SecurityDelta:
        if self.security is None:
            from ottla.metadata.security_delta import SecurityDelta

            self.security = SecurityDelta(self.image)
        return self.security

    def replay_all(self, records: Iterable[Message]) -> MetadataDelta:
        """Add records in order; return the delta itself."""
        for record in records:
            self.replay(record)
        return self

    def apply(self, end_offset: int | None = None, epoch: int | None = None) -> MetadataImage:
        """Return the image with all changes, as of an offset of the metadata log."""
        return run_to_end(self.apply_in_steps(end_offset, epoch))

    def apply_in_steps(
        self, end_offset: int | None = None, epoch: int | None = None
    ) -> Steps[MetadataImage]:
        """Return the same as `apply`. No record may be added meanwhile."""
        old = self.image
        image = yield from self.topics.apply()
        return image._replace(
            end_offset=old.end_offset if end_offset is None else end_offset,
            epoch=old.epoch if epoch is None else epoch,
            configs=self.configs.configs() if self.configs.changed else old.configs,
            brokers=self.brokers.brokers(),
            controllers=self.brokers.controllers(),
            features=self.features.features(),
            next_producer_id=self.producer_ids.next_producer_id,
            security=old.security if self.security is None else self.security.security(),
        )


def _ignore(record: Message) -> None:
    """Do nothing: the record does not change the image."""
