"""Records for a broker that starts: features, registration, leader epochs."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.config.listeners import SECURITY_PROTOCOLS, Endpoint
from ottla.metadata.image import MetadataImage, PartitionImage
from ottla.metadata.records import (
    NO_LEADER,
    BrokerEndpoint,
    BrokerFeature,
    FeatureLevelRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from ottla.wire.message import Message

METADATA_VERSION = "metadata.version"
METADATA_LEVEL = 25  # Kafka 4.0-IV3, whose records these are
MIN_METADATA_LEVEL = 7  # Kafka 3.3-IV3, the oldest level Kafka 4 reads
GROUP_VERSION = "group.version"
GROUP_LEVEL = 1  # groups of the new protocol (KIP-848)

SUPPORTED_FEATURES = {
    METADATA_VERSION: (MIN_METADATA_LEVEL, METADATA_LEVEL),
    GROUP_VERSION: (0, GROUP_LEVEL),
}
"""The lowest and highest level of each feature that this broker supports (KIP-584)."""


def begin_cluster(image: MetadataImage) -> list[Message]:
    """Return the levels of the features that the cluster lacks: all of them if it is new."""
    return [
        FeatureLevelRecord(name=name, feature_level=level)
        for name, (_, level) in SUPPORTED_FEATURES.items()
        if name not in image.features
    ]


def register_broker(
    *,
    broker_id: int,
    broker_epoch: int,
    incarnation_id: bytes,
    endpoints: Sequence[Endpoint],
    rack: str | None,
    log_dirs: Sequence[bytes],
) -> list[Message]:
    """Return the record that registers a broker, unfenced: a single broker is active at once."""
    return [
        RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=incarnation_id,
            broker_epoch=broker_epoch,
            end_points=[_endpoint(endpoint) for endpoint in endpoints],
            features=[
                BrokerFeature(
                    name=name, min_supported_version=lowest, max_supported_version=highest
                )
                for name, (lowest, highest) in SUPPORTED_FEATURES.items()
            ],
            rack=rack,
            fenced=False,
            log_dirs=list(log_dirs),
        )
    ]


def lead_anew(image: MetadataImage, broker_id: int) -> list[Message]:
    """Return records that give every partition led by this broker a new leader epoch.

    After a crash, records that clients have read may be gone. A new epoch tells them (KIP-320).
    """
    return [
        PartitionChangeRecord(
            partition_id=partition.partition_id, topic_id=topic.topic_id, leader=broker_id
        )
        for topic in image.topics.values()
        for partition in topic.partitions
        if partition.leader == broker_id
    ]


def take_lead(image: MetadataImage, broker_id: int) -> list[Message]:
    """Return records that let this broker lead partitions without a leader, if it has all records.

    A Kafka broker leaves its partitions so when it is shut down.
    """
    return [
        PartitionChangeRecord(
            partition_id=partition.partition_id,
            topic_id=topic.topic_id,
            leader=broker_id,
            isr=[broker_id],
        )
        for topic in image.topics.values()
        for partition in topic.partitions
        if partition.leader == NO_LEADER and broker_id in _complete(partition)
    ]


def _complete(partition: PartitionImage) -> tuple[int, ...]:
    """Return the replicas that have every acknowledged record (KIP-966)."""
    if len(partition.replicas) == 1:
        return partition.replicas
    return partition.isr + partition.eligible_leader_replicas


def _endpoint(endpoint: Endpoint) -> BrokerEndpoint:
    return BrokerEndpoint(
        name=endpoint.listener_name,
        host=endpoint.host,
        port=endpoint.port,
        security_protocol=SECURITY_PROTOCOLS.index(endpoint.security_protocol),
    )
