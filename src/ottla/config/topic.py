"""Topic settings, and `LogConfig`, which has their values for the log.

If a topic does not set a value, it comes from the broker: from the first of the setting's
synonyms that the broker sets (milliseconds before minutes before hours). The defaults are in
`LogConfig` only. Names, ranges and defaults are those of Kafka 4.3 (KIP-1030 raised the minimum
segment size and limited timestamps in the future).
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
    """The settings of one topic's logs. Without arguments, all have Kafka's defaults."""

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
        """The maximum age of the active segment, which compaction's maximum lag may shorten."""
        if self.compacts and self.max_compaction_lag_ms > 0:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms


class Synonym(NamedTuple):
    """A broker setting that is the default of a topic setting, and its unit in milliseconds."""

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
    "Overrides segment.bytes, without a minimum. For tests with many small segments.",
    internal=True,
)

_SETTINGS = (
    _setting(
        "cleanup.policy",
        "list",
        OneOf(("compact", "delete")),
        "What happens to old segments. delete removes them according to retention.ms and"
        " retention.bytes. compact requires every record to have a key (compaction itself is not"
        " supported yet).",
    ),
    _setting(
        "compression.gzip.level",
        "int",
        Between(1, 9, -1),
        "The compression level if compression.type is gzip. -1 means the default of the library.",
    ),
    _setting(
        "compression.lz4.level",
        "int",
        Between(1, 17),
        "The compression level if compression.type is lz4.",
    ),
    _setting(
        "compression.type",
        "string",
        OneOf(CODECS),
        "The compression of stored batches. producer stores each batch as it arrives. With any"
        " other value, the broker recompresses batches that use another codec.",
    ),
    _setting(
        "compression.zstd.level",
        "int",
        Between(-131072, 22),
        "The compression level if compression.type is zstd.",
    ),
    _setting(
        "delete.retention.ms",
        "long",
        AtLeast(0),
        "How long compaction keeps a tombstone: a record that deletes its key.",
        effective=False,
    ),
    _setting(
        "file.delete.delay.ms",
        "long",
        AtLeast(0),
        "How long a deleted segment stays on disk, with the suffix .deleted, so that running"
        " fetches can finish.",
    ),
    _setting(
        "flush.messages",
        "long",
        AtLeast(1),
        "Flush a partition to disk after this many records. By default, the operating system"
        " flushes, and replication protects records.",
    ),
    _setting(
        "flush.ms",
        "long",
        AtLeast(0),
        "Flush a partition to disk when its oldest unflushed record is this old.",
    ),
    _setting(
        "follower.replication.throttled.replicas",
        "list",
        ReplicaList(),
        "Follower replicas whose replication is throttled, as partition:broker, or * for all.",
        effective=False,
    ),
    _setting(
        "index.interval.bytes",
        "int",
        AtLeast(0),
        "The number of bytes of batches between two entries of the offset index.",
    ),
    _setting(
        "leader.replication.throttled.replicas",
        "list",
        ReplicaList(),
        "Leader replicas whose replication is throttled, as partition:broker, or * for all.",
        effective=False,
    ),
    _setting(
        "local.retention.bytes",
        "long",
        AtLeast(-2),
        "The number of bytes of a tiered topic to keep on local disk. -2 means retention.bytes.",
        effective=False,
    ),
    _setting(
        "local.retention.ms",
        "long",
        AtLeast(-2),
        "How long to keep segments of a tiered topic on local disk. -2 means retention.ms.",
        effective=False,
    ),
    _setting(
        "max.compaction.lag.ms",
        "long",
        AtLeast(1),
        "The maximum time that a record of a compacted topic stays uncompacted. Its segment is"
        " rolled early enough for that.",
    ),
    _setting(
        "max.message.bytes",
        "int",
        AtLeast(0),
        "The maximum size of a batch, after compression by the producer.",
    ),
    _setting(
        "message.timestamp.after.max.ms",
        "long",
        AtLeast(0),
        "The maximum time that a record's CreateTime may be in the future. The broker refuses"
        " batches with a later one.",
    ),
    _setting(
        "message.timestamp.before.max.ms",
        "long",
        AtLeast(0),
        "The maximum time that a record's CreateTime may be in the past. The broker refuses"
        " batches with an earlier one.",
    ),
    _setting(
        "message.timestamp.type",
        "string",
        OneOf(("CreateTime", "LogAppendTime")),
        "The timestamp of records: the producer's (CreateTime), or the time of the append"
        " (LogAppendTime).",
    ),
    _setting(
        "min.cleanable.dirty.ratio",
        "double",
        Between(0, 1),
        "The fraction of a log that must be uncompacted before it is compacted again.",
        effective=False,
    ),
    _setting(
        "min.compaction.lag.ms",
        "long",
        AtLeast(0),
        "The minimum time that a record of a compacted topic stays uncompacted.",
        effective=False,
    ),
    _setting(
        "min.insync.replicas",
        "int",
        AtLeast(1),
        "The minimum number of in-sync replicas for a produce request with acks=all.",
    ),
    _setting(
        "preallocate",
        "boolean",
        None,
        "Preallocate the full size of a segment on disk when it is created.",
    ),
    _setting(
        "remote.log.copy.disable",
        "boolean",
        None,
        "Stop copying segments of a tiered topic to remote storage.",
        effective=False,
    ),
    _setting(
        "remote.log.delete.on.disable",
        "boolean",
        None,
        "Delete the remote segments when tiered storage is disabled.",
        effective=False,
    ),
    _setting(
        "remote.storage.enable",
        "boolean",
        None,
        "Use tiered storage for the topic. true is refused, because tiered storage is not"
        " supported yet.",
        effective=False,
    ),
    _setting(
        "retention.bytes",
        "long",
        None,
        "The maximum size of a partition. The broker deletes old segments while it is larger."
        " -1 means no limit.",
    ),
    _setting(
        "retention.ms",
        "long",
        AtLeast(-1),
        "The broker deletes segments whose newest record is older than this. -1 means no limit.",
    ),
    _setting(
        "segment.bytes",
        "int",
        AtLeast(1024 * 1024),
        "The maximum size of a segment. Then a new one is created.",
    ),
    _setting(
        "segment.index.bytes",
        "int",
        AtLeast(4),
        "The maximum size of a segment's offset index, preallocated while the segment is"
        " active. When it is full, a new segment is created.",
    ),
    _setting(
        "segment.jitter.ms",
        "long",
        AtLeast(0),
        "The maximum random time to subtract from segment.ms, so that logs do not all roll at"
        " the same time.",
    ),
    _setting(
        "segment.ms",
        "long",
        AtLeast(1),
        "The maximum age of the active segment. Then a new one is created, even if it is not full.",
    ),
    _setting(
        "unclean.leader.election.enable",
        "boolean",
        None,
        "Allow a replica that is not in sync to become leader if no other is left. This can"
        " lose records.",
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
    """Return the log settings of a topic without overrides, for these parsed broker settings."""
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
    """Return the settings of a topic with these overrides. Raise ConfigError if one is invalid."""
    return topic_log_config(broker.log_defaults, topic_overrides)


def topic_log_config(defaults: LogConfig, overrides: Mapping[str, str]) -> LogConfig:
    """Return the settings of a topic with these overrides. Raise ConfigError with all mistakes."""
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
    """Raise ConfigError for values that exclude each other or are not supported."""
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
