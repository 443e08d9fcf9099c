"""What eligible leader replicas (KIP-966) mean for min.insync.replicas.

A replica stays eligible to lead after it has left the ISR because nothing is committed while fewer
than min.insync.replicas are in sync. If min.insync.replicas changes, this does not follow any more:
then replicas outside of the ISR lose their eligibility. All controllers must count with the same
number: it is a setting of topics and of the cluster, not of single brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.config.broker import BrokerConfig
from ottla.controller.brokers import ELR_VERSION
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import ClearElrRecord, ConfigRecord
from ottla.model.config_resources import ResourceType
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.message import Message

MIN_INSYNC_REPLICAS = "min.insync.replicas"


def has_eligible_leaders(image: MetadataImage) -> bool:
    """Return True if the feature eligible.leader.replicas.version is on."""
    return image.features.get(ELR_VERSION, 0) > 0


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


def forget_eligible_leaders(image: MetadataImage, changes: Iterable[ConfigRecord]) -> list[Message]:
    """Return the records that must follow changes of settings: min.insync.replicas may change."""
    if not has_eligible_leaders(image):
        return []
    return [
        ClearElrRecord(
            topic_name=each.resource_name if each.resource_type == ResourceType.TOPIC else ""
        )
        for each in changes
        if each.name == MIN_INSYNC_REPLICAS
    ]


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


def _setting(broker: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(
        resource_type=ResourceType.BROKER,
        resource_name=broker,
        name=MIN_INSYNC_REPLICAS,
        value=value,
    )
