"""Changes of the levels of features (KIP-584, KIP-778).

A level can be chosen if every broker and every controller supports it. A level of 0 means that the
feature is off. The level of metadata.version can be lowered as far as the records of the metadata
stay the same: nothing that was written may get lost (KIP-1155 is about more than that, and not in
Kafka 4.3 either). The texts of refusals are Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.config.broker import BrokerConfig
from ottla.controller.brokers import ELR_VERSION, KRAFT_VERSION, METADATA_VERSION, own_features
from ottla.controller.eligible_leaders import switch_off, switch_on
from ottla.metadata.image import FeatureRange, MetadataImage
from ottla.metadata.record_versions import metadata_changes
from ottla.metadata.records import FeatureLevelRecord
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps
from ottla.raft.voters import MAX_KRAFT_VERSION
from ottla.wire.message import Message

FIRST_DYNAMIC_VOTERS = 21  # the level of metadata.version: Kafka 3.9-IV0
FIRST_ELR = 23  # the level of metadata.version: Kafka 4.0-IV1
FIRST_REGISTRATIONS = 15  # the level of metadata.version: Kafka 3.7-IV0


class UpgradeType(IntEnum):
    """Which changes of a level are meant. A level cannot be lowered by mistake."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A feature and the level that it is to have."""

    name: str
    level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


def update_features(
    image: MetadataImage,
    config: BrokerConfig,
    updates: Sequence[FeatureUpdate],
    voter_ids: Iterable[int],
) -> Steps[list[Message]]:
    """Return the records of new levels. Raise INVALID_UPDATE_VERSION if one is not possible."""
    asked = {update.name: update.level for update in updates}
    if len(asked) < len(updates):
        raise ApiError(ErrorCode.INVALID_REQUEST, "The request names a feature twice")
    levels = {**image.features, **asked}
    records: list[Message] = []
    for update in updates:
        now = image.features.get(update.name, 0)
        _check_direction(image, config, update, now, voter_ids)
        if update.name == METADATA_VERSION:
            _check_metadata_version(update, now)
        else:
            _check_dependencies(update, levels)
        if update.level != now:
            records += yield from _records(image, config, update)
    return records


def check_kraft_version(
    image: MetadataImage,
    config: BrokerConfig,
    update: FeatureUpdate,
    now: int,
    voter_ids: Iterable[int],
) -> None:
    """Raise INVALID_UPDATE_VERSION if kraft.version cannot get a level. It is not in the image."""
    _check_direction(image, config, update, now, voter_ids)
    if update.level < now:
        raise _refusal(update, "Can't downgrade the version of this feature.")
    if update.level and image.features.get(METADATA_VERSION, 0) < FIRST_DYNAMIC_VOTERS:
        raise _refusal(update, _depends(update, METADATA_VERSION, FIRST_DYNAMIC_VOTERS))


def _records(
    image: MetadataImage, config: BrokerConfig, update: FeatureUpdate
) -> Steps[list[Message]]:
    """Return the records of a new level. The settings that it needs come first, as in Kafka."""
    level = FeatureLevelRecord(name=update.name, feature_level=update.level)
    if update.name != ELR_VERSION:
        return [level]
    if update.level == 0:
        return [level, *(yield from switch_off(image))]
    return [*switch_on(image, config), level]


def _check_direction(
    image: MetadataImage,
    config: BrokerConfig,
    update: FeatureUpdate,
    now: int,
    voter_ids: Iterable[int],
) -> None:
    """Raise an error unless all support a level, and the request allows this direction."""
    level, upgrade_type = update.level, update.upgrade_type
    if upgrade_type is UpgradeType.UNKNOWN:
        raise _refusal(update, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _refusal(update, "A feature version cannot be less than 0.")
    reason = _not_supported(image, config, update, voter_ids)
    if reason is not None:
        raise _refusal(update, reason)
    if level < now and upgrade_type is UpgradeType.UPGRADE:
        raise _refusal(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to"
            " either safe or unsafe downgrade.",
        )
    if level > now and upgrade_type is not UpgradeType.UPGRADE:
        raise _refusal(update, "Can't downgrade to a newer version.")


def _check_metadata_version(update: FeatureUpdate, now: int) -> None:
    """Raise an error if metadata could get lost, whatever the request allows."""
    if update.level >= now or not metadata_changes(update.level, now):
        return
    if update.upgrade_type is UpgradeType.UNSAFE_DOWNGRADE:
        reason = "Unsafe metadata downgrade is not supported in this version."
    else:
        reason = (
            "Refusing to perform the requested downgrade because it might delete metadata"
            " information."
        )
    raise _failed(f"Unsupported metadata.version downgrade from {now} to {update.level}. {reason}")


def _check_dependencies(update: FeatureUpdate, levels: Mapping[str, int]) -> None:
    """Raise an error if another feature has too low a level after the request."""
    needs_elr_records = update.name == ELR_VERSION and update.level > 0
    if needs_elr_records and levels.get(METADATA_VERSION, 0) < FIRST_ELR:
        raise _refusal(update, _depends(update, METADATA_VERSION, FIRST_ELR))


def _depends(update: FeatureUpdate, name: str, level: int) -> str:
    return (
        f"{update.name} could not be set to {update.level} because it depends on {name}"
        f" level {level}"
    )


def _not_supported(
    image: MetadataImage, config: BrokerConfig, update: FeatureUpdate, voter_ids: Iterable[int]
) -> str | None:
    """Return why a level is not possible for a node of the cluster."""
    for who, ranges in _members(image, config.node.node_id):
        lowest, highest = next(
            ((low, high) for name, low, high in ranges if name == update.name), (0, 0)
        )
        if lowest <= update.level <= highest:
            continue
        if highest == 0:
            return f"{who} does not support this feature."
        versions = f"{lowest}-{highest}" if lowest < highest else f"{lowest}"
        return f"{who} only supports versions {versions}"
    if image.features.get(METADATA_VERSION, 0) < FIRST_REGISTRATIONS:
        return None  # controllers cannot tell what they support
    for voter_id in voter_ids:
        if voter_id != config.node.node_id and voter_id not in image.controllers:
            return f"controller {voter_id} has not registered, and may not support this feature"
    return None


def _members(image: MetadataImage, node_id: int) -> Iterator[tuple[str, Iterable[FeatureRange]]]:
    own = [*own_features(), FeatureRange(KRAFT_VERSION, 0, MAX_KRAFT_VERSION)]
    yield f"Local controller {node_id}", own
    for broker in image.brokers.values():
        yield f"Broker {broker.broker_id}", broker.features
    for controller in image.controllers.values():
        if controller.controller_id != node_id:
            yield f"Controller {controller.controller_id}", controller.features


def _refusal(update: FeatureUpdate, reason: str) -> ApiError:
    return _failed(f"Invalid update version {update.level} for feature {update.name}. {reason}")


def _failed(reason: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_UPDATE_VERSION,
        "The update failed for all features since the following feature had an error: " + reason,
    )
