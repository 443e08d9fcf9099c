"""Changes of the levels of features (KIP-584, KIP-778).

A level can be chosen if every broker and every controller supports it. A level of 0 means that the
feature is off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.config.broker import BrokerConfig
from ottla.controller.brokers import ELR_VERSION, KRAFT_VERSION, METADATA_VERSION, own_features
from ottla.controller.eligible_leaders import switch_on
from ottla.metadata.image import FeatureRange, MetadataImage
from ottla.metadata.records import ClearElrRecord, FeatureLevelRecord
from ottla.model.errors import ApiError, ErrorCode
from ottla.raft.voters import MAX_KRAFT_VERSION
from ottla.wire.message import Message

FIRST_DYNAMIC_VOTERS = 21  # the level of metadata.version: Kafka 3.9-IV0
FIRST_ELR = 23  # the level of metadata.version: Kafka 4.0-IV1


class UpgradeType(IntEnum):
    """Which changes of a level are meant. A level cannot be lowered by mistake."""

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
) -> list[Message]:
    """Return the records of new levels. Raise INVALID_UPDATE_VERSION if one is not possible."""
    asked = {update.name: update.level for update in updates}
    if len(asked) < len(updates):
        raise ApiError(ErrorCode.INVALID_REQUEST, "The request names a feature twice")
    levels = {**image.features, **asked}
    records: list[Message] = []
    for update in updates:
        reason = _reason_against(image, update, levels, voter_ids)
        if reason is not None:
            raise ApiError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"The level {update.level} of {update.name} is not possible: {reason}",
            )
        if update.level != image.features.get(update.name, 0):
            records += _records(image, config, update)
    return records


def check_kraft_version(
    image: MetadataImage, update: FeatureUpdate, now: int, voter_ids: Iterable[int]
) -> None:
    """Raise INVALID_UPDATE_VERSION if kraft.version cannot get a level. It is not in the image."""
    reason = None
    if not 0 <= update.level <= MAX_KRAFT_VERSION:
        reason = f"this controller supports the levels 0 to {MAX_KRAFT_VERSION}"
    elif update.level < now:
        reason = f"it is {now} now, and cannot be lowered"
    elif update.level and image.features.get(METADATA_VERSION, 0) < FIRST_DYNAMIC_VOTERS:
        reason = f"it needs {METADATA_VERSION} {FIRST_DYNAMIC_VOTERS} or higher"
    for voter_id in voter_ids if reason is None else ():
        controller = image.controllers.get(voter_id)
        if controller is None:
            reason = f"controller {voter_id} has not registered, and may not support it"
        else:
            who = f"controller {voter_id}"
            reason = reason or _not_supported(who, KRAFT_VERSION, update.level, controller.features)
    if reason is not None:
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"The level {update.level} of {update.name} is not possible: {reason}",
        )


def _records(image: MetadataImage, config: BrokerConfig, update: FeatureUpdate) -> list[Message]:
    records: list[Message] = [
        FeatureLevelRecord(name=update.name, feature_level=update.level),
    ]
    if update.name != ELR_VERSION:
        return records
    if update.level == 0:
        return [*records, ClearElrRecord()]
    return [*records, *switch_on(image, config)]


def _reason_against(
    image: MetadataImage,
    update: FeatureUpdate,
    levels: dict[str, int],
    voter_ids: Iterable[int],
) -> str | None:
    name, level, upgrade_type = update
    now = image.features.get(name, 0)
    if level < 0:
        return "a level cannot be less than 0"
    for who, ranges in _members(image):
        reason = _not_supported(who, name, level, ranges)
        if reason is not None:
            return reason
    for voter_id in voter_ids:
        if voter_id not in image.controllers:
            return f"controller {voter_id} has not registered, and may not support it"
    if level < now and upgrade_type is UpgradeType.UPGRADE:
        return f"it is {now} now, and the request does not allow to lower it"
    if level > now and upgrade_type is not UpgradeType.UPGRADE:
        return f"it is {now} now, and the request asks to lower it"
    if name == METADATA_VERSION and level < now:
        return "metadata that is already written could get lost"
    if name == ELR_VERSION and level and levels.get(METADATA_VERSION, 0) < FIRST_ELR:
        return f"it needs {METADATA_VERSION} {FIRST_ELR} or higher"
    return None


def _members(image: MetadataImage) -> Iterator[tuple[str, Iterable[FeatureRange]]]:
    yield "this controller", own_features()
    for broker in image.brokers.values():
        yield f"broker {broker.broker_id}", broker.features
    for controller in image.controllers.values():
        yield f"controller {controller.controller_id}", controller.features


def _not_supported(who: str, name: str, level: int, ranges: Iterable[FeatureRange]) -> str | None:
    lowest, highest = next(((low, high) for each, low, high in ranges if each == name), (0, 0))
    if lowest <= level <= highest:
        return None
    if highest == 0:
        return f"{who} does not support this feature"
    return f"{who} supports the levels {lowest} to {highest}"
