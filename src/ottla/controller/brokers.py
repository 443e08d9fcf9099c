"""Records for a broker that starts: features, registration, leader epochs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from ottla.config.listeners import SECURITY_PROTOCOLS, Endpoint
from ottla.metadata import record_versions
from ottla.metadata.image import FeatureRange, MetadataImage, PartitionImage
from ottla.metadata.records import (
    NO_LEADER,
    BrokerEndpoint,
    BrokerFeature,
    FeatureLevelRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.steps import ITEMS_A_STEP, Steps
from ottla.raft.voters import MAX_KRAFT_VERSION
from ottla.wire.message import Message

METADATA_VERSION = record_versions.METADATA_VERSION
KRAFT_VERSION = "kraft.version"  # it is in the log of the quorum, not in the image
METADATA_LEVEL = 25  # Kafka 4.0-IV3, whose records these are
MAX_METADATA_LEVEL = 30  # Kafka 4.3-IV0: all its records are read
MIN_METADATA_LEVEL = 7  # Kafka 3.3-IV3, the oldest level Kafka 4 reads
DIRECTORIES_LEVEL = 17  # Kafka 3.7-IV2: records name the log directories of replicas
GROUP_VERSION = "group.version"
GROUP_LEVEL = 1  # groups of the new protocol (KIP-848)
TRANSACTION_VERSION = "transaction.version"
TRANSACTION_LEVEL = 2  # an epoch for each transaction (KIP-890)
ELR_VERSION = "eligible.leader.replicas.version"
ELR_LEVEL = 1  # eligible leader replicas (KIP-966)

SUPPORTED_FEATURES = {
    METADATA_VERSION: (MIN_METADATA_LEVEL, MAX_METADATA_LEVEL),
    GROUP_VERSION: (0, GROUP_LEVEL),
    ELR_VERSION: (0, ELR_LEVEL),
    TRANSACTION_VERSION: (0, TRANSACTION_LEVEL),
}
"""The lowest and highest level of each feature that this broker supports (KIP-584)."""
LEVELS_OF_A_NEW_CLUSTER = {
    METADATA_VERSION: METADATA_LEVEL,
    ELR_VERSION: ELR_LEVEL,
    GROUP_VERSION: GROUP_LEVEL,
    TRANSACTION_VERSION: TRANSACTION_LEVEL,
}
"""Kafka 4.3 begins with the same, and with metadata.version 30."""

TOLERATED_FEATURES = {
    "share.version": (0, 1),
    "streams.version": (0, 1),
}
"""Features that the controllers of a cluster may have switched on without harm to this broker.

Apache Kafka's controller refuses a broker that does not name every feature in use. What these
stand for is served by the brokers that have it.
"""


MOST_NODES: Final = 5000
"""How many brokers, and how many controllers, a cluster may have: every node remembers them all."""


def check_room(known: Mapping[int, object], node_id: int) -> None:
    """Raise POLICY_VIOLATION if a node is new and there are too many already."""
    if node_id not in known and len(known) >= MOST_NODES:
        raise ApiError(ErrorCode.POLICY_VIOLATION, f"There are {MOST_NODES} such nodes already")


def check_features(image: MetadataImage, features: Iterable[FeatureRange]) -> None:
    """Raise UNSUPPORTED_VERSION if a broker does not support a feature as the cluster uses it."""
    supported = {name: (lowest, highest) for name, lowest, highest in features}
    for name, level in image.features.items():
        lowest, highest = supported.get(name, (0, 0))
        if level and not lowest <= level <= highest:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"The cluster uses {name} {level}, and the broker supports {lowest} to {highest}",
            )


def levels_of_a_new_cluster() -> list[Message]:
    """Return the records of the levels that the features of a new cluster have."""
    return [
        FeatureLevelRecord(name=name, feature_level=level)
        for name, level in LEVELS_OF_A_NEW_CLUSTER.items()
    ]


def register_broker(
    *,
    broker_id: int,
    broker_epoch: int,
    incarnation_id: bytes,
    endpoints: Sequence[Endpoint],
    rack: str | None,
    log_dirs: Sequence[bytes],
    features: Iterable[FeatureRange] | None = None,
    fenced: bool = False,
) -> list[Message]:
    """Return the record that registers a broker. A single broker is active at once."""
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
                for name, lowest, highest in (own_features() if features is None else features)
            ],
            rack=rack,
            fenced=fenced,
            log_dirs=list(log_dirs),
        )
    ]


def own_features() -> list[FeatureRange]:
    """Return the features that this version supports."""
    return [FeatureRange(name, *levels) for name, levels in SUPPORTED_FEATURES.items()]


def features_in_a_cluster() -> list[FeatureRange]:
    """Return the features that a node names to others, which may be of Apache Kafka."""
    tolerated = [FeatureRange(name, *levels) for name, levels in TOLERATED_FEATURES.items()]
    return [*own_features(), FeatureRange(KRAFT_VERSION, 0, MAX_KRAFT_VERSION), *tolerated]


def lead_anew(
    image: MetadataImage, broker_id: int, offline: Collection[TopicPartition] = ()
) -> list[Message]:
    """Return records that give every partition led by this broker a new leader epoch.

    After a crash, records that clients have read may be gone. A new epoch tells them (KIP-320).
    """
    return [
        PartitionChangeRecord(
            partition_id=partition.partition_id, topic_id=topic.topic_id, leader=broker_id
        )
        for topic in image.topics.values()
        for partition in topic.partitions
        if partition.leader == broker_id and (topic.name, partition.partition_id) not in offline
    ]


def take_lead(
    image: MetadataImage, broker_id: int, offline: Collection[TopicPartition] = ()
) -> list[Message]:
    """Return records that let this broker lead partitions without a leader, if it has all records.

    A Kafka broker leaves its partitions so when it is shut down, and Ottla those whose log
    directory was lost. They are not led again as long as they are offline.
    """
    return [
        PartitionChangeRecord(
            partition_id=partition.partition_id,
            topic_id=topic.topic_id,
            leader=broker_id,
            isr=[broker_id],
            eligible_leader_replicas=[] if partition.eligible_leader_replicas else None,
            last_known_elr=[] if partition.last_known_elr else None,
        )
        for topic in image.topics.values()
        for partition in topic.partitions
        if partition.leader == NO_LEADER
        and broker_id in _complete(partition)
        and (topic.name, partition.partition_id) not in offline
    ]


def give_up_lead(
    image: MetadataImage, broker_id: int, offline: Iterable[TopicPartition]
) -> Steps[list[Message]]:
    """Return records that leave partitions without a leader: this broker has lost their logs."""
    records: list[Message] = []
    for number, (name, index) in enumerate(offline, 1):
        topic = image.topics.get(name)
        is_there = topic is not None and index < len(topic.partitions)
        if topic is not None and is_there and topic.partitions[index].leader == broker_id:
            records.append(
                PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=NO_LEADER)
            )
        if not number % ITEMS_A_STEP:
            yield
    return records


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
