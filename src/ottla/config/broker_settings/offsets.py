"""Broker settings of committed offsets and of the topic `__consumer_offsets`."""

from __future__ import annotations

from ottla.config.component import Component, setting
from ottla.config.definition import AtLeast, Between


class OffsetsConfig(Component):
    """How committed offsets are stored and when they expire."""

    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes",
        "int",
        default=4096,
        validator=AtLeast(0),
        doc="The maximum size of the metadata text of a committed offset.",
        importance="high",
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        "int",
        default=10080,
        validator=AtLeast(1),
        doc=(
            "How long offsets are kept after the last member leaves the group. For consumers"
            " without group membership: how long after the last commit."
        ),
        importance="high",
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        "long",
        default=600000,
        validator=AtLeast(1),
        doc="How often the broker checks for expired offsets.",
        importance="high",
    )
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions",
        "int",
        default=50,
        validator=AtLeast(1),
        doc=(
            "The number of partitions of __consumer_offsets when it is created. Do not change it"
            " later."
        ),
        importance="high",
    )
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor",
        "short",
        default=3,
        validator=AtLeast(1),
        doc=(
            "The number of replicas of __consumer_offsets when it is created. Groups have to wait"
            " until there are as many brokers. A single broker needs no more than itself."
        ),
        importance="high",
    )
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes",
        "int",
        default=104857600,
        validator=AtLeast(1),
        doc=(
            "The segment.bytes of __consumer_offsets when it is created. A value below 1 MiB counts"
            " as 1 MiB."
        ),
        importance="high",
    )
    offsets_topic_compression_codec: int = setting(
        "offsets.topic.compression.codec",
        "int",
        default=0,
        validator=Between(0, 4),
        doc=(
            "The compression of batches of __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4"
            " zstd."
        ),
        importance="high",
    )
