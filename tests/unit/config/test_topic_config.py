from __future__ import annotations

import pytest

from ottla.config.broker import BrokerConfig, broker_settings
from ottla.config.definition import ConfigError
from ottla.config.topic import SYNONYMS, TOPIC_SETTINGS, LogConfig, check_turned_off, log_config

# Kafka 4.3's topic settings with their defaults.
KAFKA = {
    "cleanup.policy": ("delete",),
    "compression.gzip.level": -1,
    "compression.lz4.level": 9,
    "compression.type": "producer",
    "compression.zstd.level": 3,
    "delete.retention.ms": 86400000,
    "file.delete.delay.ms": 60000,
    "flush.messages": 9223372036854775807,
    "flush.ms": 9223372036854775807,
    "follower.replication.throttled.replicas": (),
    "index.interval.bytes": 4096,
    "leader.replication.throttled.replicas": (),
    "local.retention.bytes": -2,
    "local.retention.ms": -2,
    "max.compaction.lag.ms": 9223372036854775807,
    "max.message.bytes": 1048588,
    "message.timestamp.after.max.ms": 3600000,
    "message.timestamp.before.max.ms": 9223372036854775807,
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": 0.5,
    "min.compaction.lag.ms": 0,
    "min.insync.replicas": 1,
    "preallocate": False,
    "remote.log.copy.disable": False,
    "remote.log.delete.on.disable": False,
    "remote.storage.enable": False,
    "retention.bytes": -1,
    "retention.ms": 604800000,
    "segment.bytes": 1073741824,
    "segment.index.bytes": 10485760,
    "segment.jitter.ms": 0,
    "segment.ms": 604800000,
    "unclean.leader.election.enable": False,
}


def test_names_and_defaults_are_kafkas() -> None:
    public = {name: s.default for name, s in TOPIC_SETTINGS.items() if not s.internal}
    assert public == KAFKA


def test_a_broker_without_settings_gives_kafkas_defaults() -> None:
    assert BrokerConfig().log_defaults == LogConfig()
    assert log_config(BrokerConfig(), {}) == LogConfig()


def test_every_synonym_is_a_broker_setting() -> None:
    missing = {s.name for synonyms in SYNONYMS.values() for s in synonyms} - set(broker_settings())
    assert missing == set()


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({}, 604800000),
        ({"log.retention.hours": "2"}, 7200000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180000),
        (
            {
                "log.retention.hours": "2",
                "log.retention.minutes": "3",
                "log.retention.ms": "4",
            },
            4,
        ),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-1", "log.retention.hours": "1"}, -1),
        ({"log.retention.minutes": "-5"}, -1),
    ],
)
def test_milliseconds_before_minutes_before_hours(
    properties: dict[str, str], retention_ms: int
) -> None:
    assert BrokerConfig(properties).log_defaults.retention_ms == retention_ms


def test_rolling_and_flushing_have_coarser_synonyms_too() -> None:
    config = BrokerConfig(
        {
            "log.roll.hours": "3",
            "log.roll.jitter.hours": "1",
            "log.flush.scheduler.interval.ms": "500",
        }
    ).log_defaults
    assert config.segment_ms == 3 * 3600000
    assert config.segment_jitter_ms == 3600000
    assert config.flush_ms == 500
    finer = BrokerConfig(
        {"log.roll.hours": "3", "log.roll.ms": "7", "log.flush.interval.ms": "8"}
    ).log_defaults
    assert (finer.segment_ms, finer.flush_ms) == (7, 8)


def test_a_topic_overrides_its_broker() -> None:
    broker = BrokerConfig({"log.retention.ms": "4", "log.segment.bytes": "2000000"})
    config = log_config(broker, {"retention.ms": "9", "cleanup.policy": "compact,delete"})
    assert config.retention_ms == 9
    assert config.segment_bytes == 2000000
    assert config.cleanup_policy == {"compact", "delete"}
    assert config.compacts
    assert config.deletes


def test_tests_may_have_small_segments() -> None:
    assert log_config(BrokerConfig(), {"internal.segment.bytes": "100"}).segment_bytes == 100
    assert BrokerConfig({"internal.segment.bytes": "100"}).log_defaults.segment_bytes == 100
    with pytest.raises(ConfigError, match=r"segment.bytes: Value must be at least 1048576"):
        log_config(BrokerConfig(), {"segment.bytes": "1048575"})


def test_compaction_bounds_the_age_of_a_segment() -> None:
    compacted = LogConfig(
        cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=5, segment_ms=10
    )
    assert compacted.max_segment_ms == 5
    assert compacted.replace(cleanup_policy=frozenset({"delete"})).max_segment_ms == 10


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"retention.msec": "1"},
            r"Unknown topic config name: retention.msec; did you mean retention",
        ),
        (
            {"retention.ms": "soon"},
            "Invalid value soon for configuration retention.ms: Not a number",
        ),
        ({"retention.ms": "-2"}, "at least -1"),
        ({"cleanup.policy": "shred"}, "one of: compact, delete"),
        ({"compression.type": "brotli"}, "one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ({"compression.gzip.level": "10"}, "between 1 and 9 or equal to -1"),
        ({"message.timestamp.type": "createtime"}, "one of: CreateTime, LogAppendTime"),
        ({"min.cleanable.dirty.ratio": "2"}, "no more than 1"),
        (
            {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"},
            r"conflict topic config .* min.compaction.lag.ms \(5\) > max.compaction.lag.ms \(4\)",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker",
        ),
    ],
)
def test_wrong_overrides_are_refused(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        log_config(BrokerConfig(), overrides)


TIER = BrokerConfig(
    {"remote.log.storage.system.enable": "true", "remote.log.storage.url": "memory:"}
)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"retention.ms": "1000", "local.retention.ms": "1001"},
            "local.retention.ms: Value must not be more than retention.ms property value: 1000",
        ),
        (
            {"retention.bytes": "1000", "local.retention.bytes": "-1"},
            "Value must not be -1 as retention.bytes value is set as 1000",
        ),
        (
            {"remote.log.copy.disable": "true", "local.retention.ms": "1"},
            "must be set to the identical value",
        ),
        ({"local.retention.ms": "-3"}, "at least -2"),
    ],
)
def test_wrong_settings_of_a_tiered_topic_are_refused(
    overrides: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        log_config(TIER, {"remote.storage.enable": "true", **overrides})


def test_local_retention_follows_retention_unless_it_is_set() -> None:
    tiered = {"remote.storage.enable": "true", "retention.ms": "5000", "retention.bytes": "77"}
    config = log_config(TIER, tiered)
    assert (config.kept_local_ms, config.kept_local_bytes) == (5000, 77)
    local = {"local.retention.ms": "10", "local.retention.bytes": "0"}
    config = log_config(TIER, {**tiered, **local})
    assert (config.kept_local_ms, config.kept_local_bytes) == (10, 0)


def test_a_tier_is_turned_off_only_if_its_segments_are_deleted() -> None:
    old = {"remote.storage.enable": "true"}
    check_turned_off(old, log_config(TIER, old))
    check_turned_off({}, log_config(TIER, {}))
    check_turned_off(old, log_config(TIER, {"remote.log.delete.on.disable": "true"}))
    with pytest.raises(ConfigError, match="invalid to disable remote storage without deleting"):
        check_turned_off(old, log_config(TIER, {"remote.storage.enable": "false"}))
