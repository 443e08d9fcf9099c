"""Decisions of the controller, made at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.config.broker import BrokerConfig
from ottla.controller import configs, features, partitions, placement, topics
from ottla.controller.decision import Decision
from ottla.metadata.image import BrokerImage, MetadataImage
from ottla.model.steps import run_to_end
from ottla.ports import Random
from ottla.wire.message import Message


def create_topics(
    image: MetadataImage, config: BrokerConfig, random: Random, wanted: Sequence[topics.NewTopic]
) -> Decision[topics.CreatedTopic]:
    """Decide about topics to create."""
    return run_to_end(topics.create_topics(image, config, random, wanted))


def delete_topics(
    image: MetadataImage, config: BrokerConfig, unwanted: Sequence[topics.UnwantedTopic]
) -> Decision[topics.DeletedTopic]:
    """Decide about topics to delete."""
    return run_to_end(topics.delete_topics(image, config, unwanted))


def create_partitions(
    image: MetadataImage, random: Random, wanted: Sequence[partitions.MorePartitions]
) -> Decision[partitions.GrownTopic]:
    """Decide about partitions to add."""
    return run_to_end(partitions.create_partitions(image, random, wanted))


def alter_configs(
    image: MetadataImage, config: BrokerConfig, changes: Sequence[configs.ConfigChange]
) -> Decision[configs.ChangedConfig]:
    """Decide about changes of settings."""
    return run_to_end(configs.alter_configs(image, config, changes))


def update_features(
    image: MetadataImage,
    config: BrokerConfig,
    updates: Sequence[features.FeatureUpdate],
    voter_ids: Iterable[int],
) -> list[Message]:
    """Decide about levels of features."""
    return run_to_end(features.update_features(image, config, updates, voter_ids))


def place(
    brokers: Iterable[BrokerImage], count: int, replication_factor: int, random: Random
) -> list[tuple[int, ...]]:
    """Choose replicas for new partitions."""
    return run_to_end(placement.place(brokers, count, replication_factor, random))
