"""Settings of topics, and `LogConfig`: their values as the log uses them.

A topic that does not set one takes it from the broker, through the first of the setting's
synonyms that the broker has (milliseconds before minutes before hours). The defaults stand
once, in `LogConfig`. Names, ranges and defaults are those of Kafka 4.3 (KIP-1030 raised
the least segment size and bounded timestamps in the future).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

from ottla.config.definition import (
    MAX_LONG,
    AtLeast,
    Between,
    ConfigError,
    OneOf,
    ReplicaList,
    Setting,
    Type,
    Validator,
    Value,
    parse_all,
)

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


class LogConfig(NamedTuple):
    """The settings of one topic's logs; without arguments, Kafka's defaults."""

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = 24 * HOUR_MS
    file_delete_delay_ms: int = MINUTE_MS
    flush_messages: int = MAX_LONG
    flush_ms: int = MAX_LONG
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = MAX_LONG
    max_message_bytes: int = 1024 * 1024 + 12
    message_timestamp_after_max_ms: int = HOUR_MS
    message_timestamp_before_max_ms: int = MAX_LONG
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = 7 * 24 * HOUR_MS
    segment_bytes: int = 1024 * 1024 * 1024
    segment_index_bytes: int = 10 * 1024 * 1024
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * 24 * HOUR_MS
    unclean_leader_election_enable: bool = False

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """How long a segment stays active: compaction must reach it within its own bound."""
        if self.compacts and self.max_compaction_lag_ms > 0:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms


class Synonym(NamedTuple):
    """A broker setting that gives a topic setting its default, and its unit in milliseconds."""

    name: str
    unit_ms: int = 1


def _setting(
    name: str, kind: Type, validator: Validator | None, doc: str, *, effective: bool = True
) -> Setting:
    default: Value | frozenset[str] = LogConfig._field_defaults[name.replace(".", "_")]
    if isinstance(default, frozenset):
        default = tuple(sorted(default))
    return Setting(name, kind, default, validator, doc, effective=effective)


INTERNAL_SEGMENT_BYTES = Setting(
    "internal.segment.bytes",
    "int",
    None,
    AtLeast(1),
    "Takes the place of segment.bytes and has no lower bound: for tests of many small segments.",
    internal=True,
)

_SETTINGS = (
    _setting(
        "cleanup.policy",
        "list",
        OneOf(("compact", "delete")),
        "What becomes of old segments: delete removes them by retention.ms and retention.bytes;"
        " compact requires every record to have a key (the compaction itself is yet to come).",
    ),
    _setting(
        "compression.gzip.level",
        "int",
        Between(1, 9, -1),
        "The level when compression.type is gzip; -1 is the library's default.",
    ),
    _setting(
        "compression.lz4.level", "int", Between(1, 17), "The level when compression.type is lz4."
    ),
    _setting(
        "compression.type",
        "string",
        OneOf(CODECS),
        "The codec batches are stored in. producer keeps each batch as it came; with another,"
        " a batch in a different codec is recompressed.",
    ),
    _setting(
        "compression.zstd.level",
        "int",
        Between(-131072, 22),
        "The level when compression.type is zstd.",
    ),
    _setting(
        "delete.retention.ms",
        "long",
        AtLeast(0),
        "How long compaction keeps a record that deletes its key.",
        effective=False,
    ),
    _setting(
        "file.delete.delay.ms",
        "long",
        AtLeast(0),
        "How long a deleted segment stays on disk, renamed to .deleted, so that fetches can end.",
    ),
    _setting(
        "flush.messages",
        "long",
        AtLeast(1),
        "Force a partition to disk after so many records; by default that is left to the"
        " operating system and to replication.",
    ),
    _setting(
        "flush.ms",
        "long",
        AtLeast(0),
        "Force a partition to disk when its oldest unforced record is so old.",
    ),
    _setting(
        "follower.replication.throttled.replicas",
        "list",
        ReplicaList(),
        "Replicas (partition:broker, or *) whose following is throttled.",
        effective=False,
    ),
    _setting(
        "index.interval.bytes",
        "int",
        AtLeast(0),
        "How many bytes of batches lie between two entries of the offset index.",
    ),
    _setting(
        "leader.replication.throttled.replicas",
        "list",
        ReplicaList(),
        "Replicas (partition:broker, or *) whose serving of followers is throttled.",
        effective=False,
    ),
    _setting(
        "local.retention.bytes",
        "long",
        AtLeast(-2),
        "Bytes kept on local disk of a tiered topic; -2 means retention.bytes.",
        effective=False,
    ),
    _setting(
        "local.retention.ms",
        "long",
        AtLeast(-2),
        "Time kept on local disk of a tiered topic; -2 means retention.ms.",
        effective=False,
    ),
    _setting(
        "max.compaction.lag.ms",
        "long",
        AtLeast(1),
        "The longest a record of a compacted topic stays uncompacted; its segment is rolled"
        " in time for that.",
    ),
    _setting(
        "max.message.bytes",
        "int",
        AtLeast(0),
        "The largest batch accepted, as it arrives (after the producer's compression).",
    ),
    _setting(
        "message.timestamp.after.max.ms",
        "long",
        AtLeast(0),
        "How far in the future a record's CreateTime may lie before the batch is refused.",
    ),
    _setting(
        "message.timestamp.before.max.ms",
        "long",
        AtLeast(0),
        "How far in the past a record's CreateTime may lie before the batch is refused.",
    ),
    _setting(
        "message.timestamp.type",
        "string",
        OneOf(("CreateTime", "LogAppendTime")),
        "Whether records keep the producer's timestamp or get the time they were appended.",
    ),
    _setting(
        "min.cleanable.dirty.ratio",
        "double",
        Between(0, 1),
        "How much of a log must be uncompacted before it is compacted again.",
        effective=False,
    ),
    _setting(
        "min.compaction.lag.ms",
        "long",
        AtLeast(0),
        "The shortest a record of a compacted topic stays uncompacted.",
        effective=False,
    ),
    _setting(
        "min.insync.replicas",
        "int",
        AtLeast(1),
        "How many replicas must be in sync for a produce request with acks=all to be taken.",
    ),
    _setting(
        "preallocate", "boolean", None, "Reserve a segment's full size on disk when it is created."
    ),
    _setting(
        "remote.log.copy.disable",
        "boolean",
        None,
        "Stop copying segments of a tiered topic.",
        effective=False,
    ),
    _setting(
        "remote.log.delete.on.disable",
        "boolean",
        None,
        "Delete the remote segments when tiering is switched off.",
        effective=False,
    ),
    _setting(
        "remote.storage.enable",
        "boolean",
        None,
        "Tier the topic to remote storage; true is refused, tiered storage is yet to come.",
        effective=False,
    ),
    _setting(
        "retention.bytes",
        "long",
        None,
        "Old segments of a partition are deleted while it is larger than this; -1 is no limit.",
    ),
    _setting(
        "retention.ms",
        "long",
        AtLeast(-1),
        "Segments whose newest record is older than this are deleted; -1 is no limit.",
    ),
    _setting(
        "segment.bytes",
        "int",
        AtLeast(1024 * 1024),
        "The size at which a new segment is begun.",
    ),
    _setting(
        "segment.index.bytes",
        "int",
        AtLeast(4),
        "The size of a segment's offset index, reserved while the segment is active; a new"
        " segment is begun when it is full.",
    ),
    _setting(
        "segment.jitter.ms",
        "long",
        AtLeast(0),
        "The most that is taken off segment.ms, at random, so that logs do not roll together.",
    ),
    _setting(
        "segment.ms",
        "long",
        AtLeast(1),
        "The age at which a new segment is begun even if the old one is not full.",
    ),
    _setting(
        "unclean.leader.election.enable",
        "boolean",
        None,
        "Let a replica that is not in sync become leader when no other is left, losing records.",
        effective=False,
    ),
)

TOPIC_SETTINGS: dict[str, Setting] = {s.name: s for s in (*_SETTINGS, INTERNAL_SEGMENT_BYTES)}

_NO_BROKER_DEFAULT = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }
)
_SAME_NAME = frozenset(
    {
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "internal.segment.bytes",
        "min.insync.replicas",
        "unclean.leader.election.enable",
    }
)
_OTHER_NAME: dict[str, tuple[Synonym, ...]] = {
    "delete.retention.ms": (Synonym("log.cleaner.delete.retention.ms"),),
    "file.delete.delay.ms": (Synonym("log.segment.delete.delay.ms"),),
    "flush.messages": (Synonym("log.flush.interval.messages"),),
    "flush.ms": (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    "max.compaction.lag.ms": (Synonym("log.cleaner.max.compaction.lag.ms"),),
    "max.message.bytes": (Synonym("message.max.bytes"),),
    "min.cleanable.dirty.ratio": (Synonym("log.cleaner.min.cleanable.ratio"),),
    "min.compaction.lag.ms": (Synonym("log.cleaner.min.compaction.lag.ms"),),
    "retention.ms": (
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", MINUTE_MS),
        Synonym("log.retention.hours", HOUR_MS),
    ),
    "segment.index.bytes": (Synonym("log.index.size.max.bytes"),),
    "segment.jitter.ms": (
        Synonym("log.roll.jitter.ms"),
        Synonym("log.roll.jitter.hours", HOUR_MS),
    ),
    "segment.ms": (Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS)),
}


def _synonyms(name: str) -> tuple[Synonym, ...]:
    if name in _NO_BROKER_DEFAULT:
        return ()
    if name in _SAME_NAME:
        return (Synonym(name),)
    return _OTHER_NAME.get(name) or (Synonym("log." + name),)


SYNONYMS: dict[str, tuple[Synonym, ...]] = {name: _synonyms(name) for name in TOPIC_SETTINGS}


def broker_defaults(values: Mapping[str, Value]) -> LogConfig:
    """What logs are like on a broker with these (parsed) settings when the topic says nothing."""
    fields: dict[str, Value] = {}
    for name, synonyms in SYNONYMS.items():
        for synonym in synonyms:
            value = values.get(synonym.name)
            if value is not None:
                fields[name] = value
                if isinstance(value, int) and synonym.unit_ms != 1:
                    fields[name] = value * synonym.unit_ms if value >= 0 else value
                break
    return _with_values(LogConfig(), fields)


def log_config(broker: BrokerConfig, topic_overrides: Mapping[str, str]) -> LogConfig:
    """The settings of a topic with these overrides on this broker, or ConfigError."""
    return topic_log_config(broker.log_defaults, topic_overrides)


def topic_log_config(defaults: LogConfig, overrides: Mapping[str, str]) -> LogConfig:
    """The settings of a topic with these overrides; ConfigError names everything wrong in them."""
    if not overrides:
        return defaults
    config = _with_values(defaults, parse_all(TOPIC_SETTINGS, overrides, "topic setting"))
    check_together(config)
    return config


def _with_values(config: LogConfig, values: Mapping[str, Value]) -> LogConfig:
    fields: dict[str, object] = {name.replace(".", "_"): v for name, v in values.items()}
    if "cleanup_policy" in fields:
        fields["cleanup_policy"] = frozenset(cast(tuple[str, ...], fields["cleanup_policy"]))
    internal = fields.pop("internal_segment_bytes", None)
    if internal is not None:
        fields["segment_bytes"] = internal
    if cast(int, fields.get("retention_ms", 0)) < 0:
        fields["retention_ms"] = -1
    return config._replace(**fields)  # type: ignore[arg-type]  # parsed by the tables above


def check_together(config: LogConfig) -> None:
    """Refuse values that exclude each other, or that this broker cannot honour."""
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ConfigError(
            f"min.compaction.lag.ms ({config.min_compaction_lag_ms}) must not be larger than"
            f" max.compaction.lag.ms ({config.max_compaction_lag_ms})"
        )
    if config.remote_storage_enable:
        raise ConfigError(
            "Invalid value 'true' for remote.storage.enable: tiered storage is not available"
            " in this broker"
        )
