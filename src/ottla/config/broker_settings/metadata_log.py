"""Broker settings of the metadata log: its segments, its snapshots, and how long both are kept."""

from __future__ import annotations

from ottla.config.component import Component, setting
from ottla.config.definition import AtLeast

_WEEK_MS = 7 * 24 * 60 * 60 * 1000


class MetadataLogConfig(Component):
    """When the metadata log is rolled and snapshots are written, and when old ones are removed."""

    metadata_log_segment_bytes: int = setting(
        "metadata.log.segment.bytes",
        "int",
        default=1024 * 1024 * 1024,
        validator=AtLeast(8 * 1024 * 1024),
        doc="The largest size of a segment of the metadata log.",
        importance="high",
    )
    metadata_log_segment_ms: int = setting(
        "metadata.log.segment.ms",
        "long",
        default=_WEEK_MS,
        doc="The time after which a new segment of the metadata log is begun.",
        importance="high",
    )
    metadata_log_max_record_bytes_between_snapshots: int = setting(
        "metadata.log.max.record.bytes.between.snapshots",
        "long",
        default=20 * 1024 * 1024,
        validator=AtLeast(1),
        doc="The bytes of new metadata records after which a snapshot of the metadata is written.",
        importance="high",
    )
    metadata_log_max_snapshot_interval_ms: int = setting(
        "metadata.log.max.snapshot.interval.ms",
        "long",
        default=60 * 60 * 1000,
        validator=AtLeast(0),
        doc="The time after which a snapshot is written if there are new records. 0 is no limit.",
        importance="high",
    )
    metadata_max_retention_bytes: int = setting(
        "metadata.max.retention.bytes",
        "long",
        default=100 * 1024 * 1024,
        doc=(
            "The size of the metadata log with its snapshots above which the oldest are removed."
            " The newest snapshot is always kept. -1 is no limit."
        ),
        importance="high",
    )
    metadata_max_retention_ms: int = setting(
        "metadata.max.retention.ms",
        "long",
        default=_WEEK_MS,
        doc=(
            "How long an old metadata snapshot, and the records before the next one, are kept."
            " -1 is no limit."
        ),
        importance="high",
    )
