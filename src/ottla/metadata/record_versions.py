"""Which versions of metadata records a level of metadata.version allows.

Nodes of Apache Kafka that are as old as the level do not read newer ones. A level at which the
records changed cannot be lowered any more: older nodes would not know what was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ottla.metadata.image import MetadataImage
from ottla.metadata.records import (
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from ottla.metadata.serde import encode_record
from ottla.wire.message import Message

METADATA_VERSION: Final = "metadata.version"
_CHANGES: Final = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30})
"""The levels at which records changed: 3.3-IV3, 3.4-IV0, 3.5-IV2, 3.6-IV1, 3.6-IV2, 3.7-IV0,
3.7-IV2, 4.0-IV1 and 4.3-IV0."""
_OLDER_VERSIONS: Final[dict[type[Message], tuple[tuple[int, int], ...]]] = {
    RegisterBrokerRecord: ((8, 1), (17, 2)),
    PartitionRecord: ((17, 0), (23, 1)),
    PartitionChangeRecord: ((17, 0), (23, 1)),
}
"""Up to a level, a record has this version instead of its newest."""
_FIRST_WITH_THE_NEWEST: Final = 23


def metadata_changes(lower: int, higher: int) -> bool:
    """Return True if the records of a level are not those of a lower one."""
    return any(lower < level <= higher for level in _CHANGES)


def level_of(image: MetadataImage, records: Iterable[Message] = ()) -> int:
    """Return the level of an image; of a cluster that begins, the one that its records set."""
    level = image.features.get(METADATA_VERSION)
    if level is not None:
        return level
    for record in records:
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
            return record.feature_level
    return _FIRST_WITH_THE_NEWEST


def record_version(record_type: type[Message], level: int) -> int:
    """Return the version that a type of record has at a level of metadata.version."""
    for end, version in _OLDER_VERSIONS.get(record_type, ()):
        if level < end:
            return version
    return record_type.MAX_VERSION


def encode_at(level: int) -> Callable[[Message], bytes]:
    """Return the function that encodes a record as a level of metadata.version allows."""
    if level >= _FIRST_WITH_THE_NEWEST:
        return encode_record
    return lambda record: encode_record(record, record_version(type(record), level))


def at_level(records: Sequence[Message], level: int) -> Sequence[Message]:
    """Return records without what the versions at a level cannot tell."""
    if level >= _FIRST_WITH_THE_NEWEST:
        return records
    return [_at_version(each, record_version(type(each), level)) for each in records]


def _at_version(record: Message, version: int) -> Message:
    if version == record.MAX_VERSION:
        return record
    fields = {f.name: getattr(record, f.name) for f in record.FIELDS if f.exists(version)}
    return type(record)(**fields)
