"""Broker settings of the group coordinator: classic groups, offsets and their topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from ottla.config.definition import (
    MAX_INT,
    AtLeast,
    Between,
    ConfigError,
    Setting,
    Value,
)

GROUPS = (
    Setting(
        "group.initial.rebalance.delay.ms",
        "int",
        3000,
        AtLeast(0),
        "How long an empty group waits for more members after its first one has joined. Each"
        " that comes in that time prolongs it, up to the rebalance timeout.",
    ),
    Setting(
        "group.min.session.timeout.ms",
        "int",
        6000,
        AtLeast(1),
        "The shortest session timeout a member of a classic group may ask for.",
    ),
    Setting(
        "group.max.session.timeout.ms",
        "int",
        1800000,
        AtLeast(1),
        "The longest session timeout a member of a classic group may ask for.",
    ),
    Setting(
        "group.max.size",
        "int",
        MAX_INT,
        AtLeast(1),
        "The most members a classic group may have.",
    ),
)

OFFSETS = (
    Setting(
        "offset.metadata.max.bytes",
        "int",
        4096,
        AtLeast(0),
        "The longest text that may be committed with an offset.",
        "high",
    ),
    Setting(
        "offsets.retention.minutes",
        "int",
        10080,
        AtLeast(1),
        "How long offsets are kept after their group has lost its last member, and the offsets"
        " of consumers without a group after each commit.",
        "high",
    ),
    Setting(
        "offsets.retention.check.interval.ms",
        "long",
        600000,
        AtLeast(1),
        "How often offsets are looked over for those to give up.",
        "high",
    ),
    Setting(
        "offsets.topic.num.partitions",
        "int",
        50,
        AtLeast(1),
        "The partitions of __consumer_offsets when it is created; not to be changed later.",
        "high",
    ),
    Setting(
        "offsets.topic.replication.factor",
        "short",
        3,
        AtLeast(1),
        "The replicas of __consumer_offsets when it is created, or all brokers if there are fewer.",
        "high",
    ),
    Setting(
        "offsets.topic.segment.bytes",
        "int",
        104857600,
        AtLeast(1),
        "segment.bytes of __consumer_offsets when it is created; at least 1 MiB is taken.",
        "high",
    ),
    Setting(
        "offsets.topic.compression.codec",
        "int",
        0,
        Between(0, 4),
        "How batches of __consumer_offsets are compressed: 0 not at all, 1 gzip, 2 snappy,"
        " 3 lz4, 4 zstd.",
        "high",
    ),
)


def check_session_timeouts(values: Mapping[str, Value]) -> dict[str, object]:
    """Refuse a range of session timeouts with nothing in it."""
    shortest = cast(int, values["group.min.session.timeout.ms"])
    longest = cast(int, values["group.max.session.timeout.ms"])
    if shortest > longest:
        raise ConfigError(
            f"group.max.session.timeout.ms ({longest}) must be at least"
            f" group.min.session.timeout.ms ({shortest})"
        )
    return {}
