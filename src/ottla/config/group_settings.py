"""Broker settings of the group coordinator: classic groups, offsets and `__consumer_offsets`."""

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
        "How long an empty group waits for more members after the first one joins. Each new"
        " member extends the wait, up to the rebalance timeout.",
    ),
    Setting(
        "group.min.session.timeout.ms",
        "int",
        6000,
        AtLeast(1),
        "The minimum session timeout that a member of a classic group may request.",
    ),
    Setting(
        "group.max.session.timeout.ms",
        "int",
        1800000,
        AtLeast(1),
        "The maximum session timeout that a member of a classic group may request.",
    ),
    Setting(
        "group.max.size",
        "int",
        MAX_INT,
        AtLeast(1),
        "The maximum number of members of a classic group.",
    ),
)

OFFSETS = (
    Setting(
        "offset.metadata.max.bytes",
        "int",
        4096,
        AtLeast(0),
        "The maximum size of the metadata text of a committed offset.",
        "high",
    ),
    Setting(
        "offsets.retention.minutes",
        "int",
        10080,
        AtLeast(1),
        "How long offsets are kept after the last member leaves the group. For consumers"
        " without group membership: how long after the last commit.",
        "high",
    ),
    Setting(
        "offsets.retention.check.interval.ms",
        "long",
        600000,
        AtLeast(1),
        "How often the broker checks for expired offsets.",
        "high",
    ),
    Setting(
        "offsets.topic.num.partitions",
        "int",
        50,
        AtLeast(1),
        "The number of partitions of __consumer_offsets when it is created. Do not change it"
        " later.",
        "high",
    ),
    Setting(
        "offsets.topic.replication.factor",
        "short",
        3,
        AtLeast(1),
        "The number of replicas of __consumer_offsets when it is created, or all brokers if"
        " there are fewer.",
        "high",
    ),
    Setting(
        "offsets.topic.segment.bytes",
        "int",
        104857600,
        AtLeast(1),
        "The segment.bytes of __consumer_offsets when it is created. A value below 1 MiB counts"
        " as 1 MiB.",
        "high",
    ),
    Setting(
        "offsets.topic.compression.codec",
        "int",
        0,
        Between(0, 4),
        "The compression of batches of __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4"
        " zstd.",
        "high",
    ),
)


def check_session_timeouts(values: Mapping[str, Value]) -> dict[str, object]:
    """Raise ConfigError if the range of session timeouts is empty."""
    shortest = cast(int, values["group.min.session.timeout.ms"])
    longest = cast(int, values["group.max.session.timeout.ms"])
    if shortest > longest:
        raise ConfigError(
            f"group.max.session.timeout.ms ({longest}) must be at least"
            f" group.min.session.timeout.ms ({shortest})"
        )
    return {}
