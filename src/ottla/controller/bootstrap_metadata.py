"""The records that a new cluster begins with: those that Kafka's tool has written, or our own.

`kafka-storage.sh format` leaves them in bootstrap.checkpoint: levels of features, and passwords and
settings if it was told some. The first active controller of a cluster writes them to the log.
Levels that this version does not support end the start, features that it does not have are
left out, with a message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ottla.config.broker import BrokerConfig
from ottla.controller.brokers import KRAFT_VERSION, METADATA_VERSION, SUPPORTED_FEATURES
from ottla.controller.eligible_leaders import has_eligible_leaders, switch_on
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import FeatureLevelRecord
from ottla.metadata.serde import MetadataError
from ottla.metadata.snapshot import decode_snapshot
from ottla.ports import Files
from ottla.wire.message import Message
from ottla.wire.messages.snapshot_footer_record import SnapshotFooterRecord
from ottla.wire.messages.snapshot_header_record import SnapshotHeaderRecord

_ENDS: Final = frozenset({SnapshotHeaderRecord, SnapshotFooterRecord})
_MOST_BYTES: Final = 1024 * 1024


class BootstrapMetadata:
    """What the file in a metadata directory says about a new cluster."""

    def __init__(self, records: Sequence[Message]) -> None:
        self._records = records

    def first_records(self, image: MetadataImage, config: BrokerConfig) -> list[Message]:
        """Return what begins a new cluster; nothing for one that has begun."""
        if METADATA_VERSION in image.features:
            return []
        delta = MetadataDelta(image)
        for record in self._records:
            delta.replay(record)
        begun = delta.apply(image.end_offset, image.epoch)
        needed = switch_on(begun, config) if has_eligible_leaders(begun) else []
        return [*self._records, *needed]


def read_bootstrap(files: Files, path: str, report: Callable[[str], None]) -> BootstrapMetadata:
    """Return what Kafka's tool has written.

    Raise MetadataError if the file is damaged, or has a level that is not supported.
    """
    records = _read(files, path)
    levels = {
        each.name: each.feature_level for each in records if isinstance(each, FeatureLevelRecord)
    }
    _check(levels, path)
    unknown = levels.keys() - SUPPORTED_FEATURES.keys()
    left_out = sorted(name for name in unknown - {KRAFT_VERSION} if levels[name])
    if left_out:
        report(f"{path}: features that Ottla does not have stay off: {', '.join(left_out)}")
    return BootstrapMetadata(
        [
            each
            for each in records
            if not (isinstance(each, FeatureLevelRecord) and each.name in unknown)
        ]
    )


def _read(files: Files, path: str) -> list[Message]:
    file = files.open(path)
    try:
        if file.size() > _MOST_BYTES:
            raise MetadataError(f"{path} is too large: format an empty directory again")
        return [each for each in decode_snapshot(file) if type(each) not in _ENDS]
    finally:
        file.close()


def _check(levels: Mapping[str, int], path: str) -> None:
    if METADATA_VERSION not in levels:
        raise MetadataError(f"{path} does not say which {METADATA_VERSION} the cluster has")
    for name, (lowest, highest) in SUPPORTED_FEATURES.items():
        if name in levels and not lowest <= levels[name] <= highest:
            raise MetadataError(
                f"{path} asks for {name} {levels[name]}, and this version supports {lowest} to"
                f" {highest}: format an empty directory with a level of these"
            )
