"""What eligible leader replicas (KIP-966) mean for min.insync.replicas.

A replica stays eligible to lead after it has left the ISR because nothing is committed while fewer
than min.insync.replicas are in sync. If min.insync.replicas changes, this does not follow any more:
then replicas outside of the ISR lose their eligibility. All controllers must count with the same
number: it is a setting of topics and of the cluster, not of single brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ottla.config.broker import BrokerConfig
from ottla.controller.brokers import ELR_VERSION, METADATA_VERSION, levels_of_a_new_cluster
from ottla.metadata.image import MetadataImage, PartitionImage
from ottla.metadata.records import ClearElrRecord, ConfigRecord, PartitionChangeRecord
from ottla.model.config_resources import ResourceType
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps
from ottla.wire.message import Message

MIN_INSYNC_REPLICAS = "min.insync.replicas"
PARTITIONS_A_STEP: Final = 200


def has_eligible_leaders(image: MetadataImage) -> bool:
    """Return True if the feature eligible.leader.replicas.version is on."""
    return image.features.get(ELR_VERSION, 0) > 0


def begin_cluster(image: MetadataImage, config: BrokerConfig) -> list[Message]:
    """Return the records that a new cluster begins with; none for one that has begun.

    A cluster keeps the levels of its features until somebody changes them.
    """
    if METADATA_VERSION in image.features:
        return []
    return [*levels_of_a_new_cluster(), *switch_on(image, config)]


def check_broker_settings(
    image: MetadataImage, resource_name: str, old: Mapping[str, str], new: Mapping[str, str]
) -> None:
    """Raise INVALID_CONFIG if brokers would count with different min.insync.replicas."""
    before, after = old.get(MIN_INSYNC_REPLICAS), new.get(MIN_INSYNC_REPLICAS)
    if before == after or not has_eligible_leaders(image):
        return
    if resource_name:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Broker-level {MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled.",
        )
    if after is None:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled.",
        )


def unused_min_insync_replicas(image: MetadataImage, config: BrokerConfig) -> str | None:
    """Return a message if the file of a broker has another value than the cluster."""
    own = config.static.get(MIN_INSYNC_REPLICAS)
    cluster_wide = image.config_of(ResourceType.BROKER, "").get(MIN_INSYNC_REPLICAS)
    if own is None or cluster_wide in (None, own) or not has_eligible_leaders(image):
        return None
    return (
        f"{MIN_INSYNC_REPLICAS}={own} is not used: the cluster has {cluster_wide} since it began."
        f" `ottla configs alter --broker default --set {MIN_INSYNC_REPLICAS}={own}` changes it"
    )


def forget_eligible_leaders(
    image: MetadataImage, changes: Iterable[ConfigRecord]
) -> Steps[list[Message]]:
    """Return the records that must follow changes of settings: min.insync.replicas may change.

    Where nobody is in sync, nothing can be committed with the new value before one of those that
    may lead does so. They keep that right: else nobody could lead any more.
    """
    records: list[Message] = []
    if not has_eligible_leaders(image):
        return records
    for each in changes:
        if each.name == MIN_INSYNC_REPLICAS:
            topic = each.resource_name if each.resource_type == ResourceType.TOPIC else ""
            records.append(ClearElrRecord(topic_name=topic))
            records += yield from _with_nobody_in_sync(image, _keep_eligible_leaders, topic)
    return records


def _keep_eligible_leaders(topic_id: bytes, partition: PartitionImage) -> Message:
    return PartitionChangeRecord(
        partition_id=partition.partition_id,
        topic_id=topic_id,
        eligible_leader_replicas=list(partition.eligible_leader_replicas),
        last_known_elr=list(partition.last_known_elr),
    )


def _with_nobody_in_sync(
    image: MetadataImage,
    change: Callable[[bytes, PartitionImage], Message],
    topic_name: str = "",
) -> Steps[list[Message]]:
    """Return a change for each partition that has an empty ISR and may get a leader.

    These are the partitions of one topic, or of all.
    """
    topics = [image.topics[topic_name]] if topic_name else image.topics.values()
    changes: list[Message] = []
    count = 0
    for topic in topics:
        for partition in topic.partitions:
            count += 1
            if not count % PARTITIONS_A_STEP:
                yield
            may_lead = partition.eligible_leader_replicas or partition.last_known_elr
            if may_lead and not partition.isr:
                changes.append(change(topic.topic_id, partition))
    return changes


def switch_on(image: MetadataImage, config: BrokerConfig) -> list[Message]:
    """Return the records that let all controllers count with the same min.insync.replicas."""
    records: list[Message] = [
        _setting(name, None)
        for (kind, name), settings in image.configs.items()
        if kind == ResourceType.BROKER and name and MIN_INSYNC_REPLICAS in settings
    ]
    if MIN_INSYNC_REPLICAS not in image.config_of(ResourceType.BROKER, ""):
        records.append(_setting("", str(config.log_defaults.min_insync_replicas)))
    return records


def switch_off(image: MetadataImage) -> Steps[list[Message]]:
    """Return the records that forget eligible leaders.

    An ISR is never empty without them: where it is, those that may lead are in sync again.
    """
    records = yield from _with_nobody_in_sync(image, _bring_in_sync)
    return [*records, ClearElrRecord()]


def _bring_in_sync(topic_id: bytes, partition: PartitionImage) -> Message:
    return PartitionChangeRecord(
        partition_id=partition.partition_id,
        topic_id=topic_id,
        isr=list(partition.eligible_leader_replicas or partition.last_known_elr),
    )


def _setting(broker: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(
        resource_type=ResourceType.BROKER,
        resource_name=broker,
        name=MIN_INSYNC_REPLICAS,
        value=value,
    )
