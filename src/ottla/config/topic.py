"""Topic settings: `LogConfig` declares them and has their values for one topic.

To add a topic setting, add a field to `LogConfig`. If a topic does not set a value, it comes from
the broker: from the first of the setting's synonyms that the broker sets (milliseconds before
minutes before hours). The first synonym is a broker setting too, with the same type and default:
broker.py derives it from the declaration here. Names, ranges and defaults are those of Kafka 4.3
(KIP-1030 raised the minimum segment size and limited timestamps in the future).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, cast

from ottla.config.component import Component, resolved, setting
from ottla.config.definition import (
    MAX_LONG,
    AtLeast,
    Between,
    ConfigError,
    OneOf,
    ReplicaList,
    Setting,
    Synonym,
    Value,
    Values,
    parse_all,
)

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
TIER_DISABLED = (
    "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote"
    " log storage."
)
UNKNOWN_TOPIC_SETTING = "Unknown topic config name:"
FOLLOW_RETENTION = -2
"""local.retention.ms or local.retention.bytes: as long as the topic keeps its records at all."""
CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


def _cleanup_policy(values: Values) -> frozenset[str]:
    return frozenset(cast(tuple[str, ...], values["cleanup.policy"]))


def _retention_ms(values: Values) -> int:
    return max(cast(int, values["retention.ms"]), -1)


class LogConfig(Component):
    """The settings of one topic's logs. Without arguments, all have Kafka's defaults."""

    cleanup_policy: frozenset[str] = setting(
        "cleanup.policy",
        "list",
        default=("delete",),
        validator=OneOf(("compact", "delete")),
        doc=(
            "What happens to old segments. delete removes them according to retention.ms and"
            " retention.bytes. compact keeps the last record of each key, and requires every record"
            " to have a key. Both together are possible."
        ),
        resolve=_cleanup_policy,
        synonyms=(Synonym("log.cleanup.policy"),),
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        "int",
        default=-1,
        validator=Between(1, 9, -1),
        doc=(
            "The compression level if compression.type is gzip. -1 means the default of the"
            " library."
        ),
        synonyms=(Synonym("compression.gzip.level"),),
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level",
        "int",
        default=9,
        validator=Between(1, 17),
        doc="The compression level if compression.type is lz4.",
        synonyms=(Synonym("compression.lz4.level"),),
    )
    compression_type: str = setting(
        "compression.type",
        "string",
        default="producer",
        validator=OneOf(CODECS),
        doc=(
            "The compression of stored batches. producer stores each batch as it arrives. With any"
            " other value, the broker recompresses batches that use another codec."
        ),
        synonyms=(Synonym("compression.type"),),
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level",
        "int",
        default=3,
        validator=Between(-131072, 22),
        doc="The compression level if compression.type is zstd.",
        synonyms=(Synonym("compression.zstd.level"),),
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms",
        "long",
        default=24 * HOUR_MS,
        validator=AtLeast(0),
        doc="How long compaction keeps a tombstone: a record that deletes its key.",
        synonyms=(Synonym("log.cleaner.delete.retention.ms"),),
    )
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms",
        "long",
        default=MINUTE_MS,
        validator=AtLeast(0),
        doc=(
            "How long a deleted segment stays on disk, with the suffix .deleted, so that running"
            " fetches can finish."
        ),
        synonyms=(Synonym("log.segment.delete.delay.ms"),),
    )
    flush_messages: int = setting(
        "flush.messages",
        "long",
        default=MAX_LONG,
        validator=AtLeast(1),
        doc=(
            "Flush a partition to disk after this many records. By default, the operating system"
            " flushes, and replication protects records."
        ),
        synonyms=(Synonym("log.flush.interval.messages"),),
    )
    flush_ms: int = setting(
        "flush.ms",
        "long",
        default=MAX_LONG,
        validator=AtLeast(0),
        doc="Flush a partition to disk when its oldest unflushed record is this old.",
        synonyms=(Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        "follower.replication.throttled.replicas",
        "list",
        default=(),
        validator=ReplicaList(),
        doc="Follower replicas whose replication is throttled, as partition:broker, or * for all.",
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes",
        "int",
        default=4096,
        validator=AtLeast(0),
        doc="The number of bytes of batches between two entries of the offset index.",
        synonyms=(Synonym("log.index.interval.bytes"),),
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        "leader.replication.throttled.replicas",
        "list",
        default=(),
        validator=ReplicaList(),
        doc="Leader replicas whose replication is throttled, as partition:broker, or * for all.",
    )
    local_retention_bytes: int = setting(
        "local.retention.bytes",
        "long",
        default=-2,
        validator=AtLeast(-2),
        doc=(
            "The number of bytes of a tiered topic to keep on local disk. -2 means retention.bytes."
        ),
        synonyms=(Synonym("log.local.retention.bytes"),),
    )
    local_retention_ms: int = setting(
        "local.retention.ms",
        "long",
        default=-2,
        validator=AtLeast(-2),
        doc="How long to keep segments of a tiered topic on local disk. -2 means retention.ms.",
        synonyms=(Synonym("log.local.retention.ms"),),
    )
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms",
        "long",
        default=MAX_LONG,
        validator=AtLeast(1),
        doc=(
            "The maximum time that a record of a compacted topic stays uncompacted. Its segment is"
            " rolled early enough for that."
        ),
        synonyms=(Synonym("log.cleaner.max.compaction.lag.ms"),),
    )
    max_message_bytes: int = setting(
        "max.message.bytes",
        "int",
        default=1024 * 1024 + 12,
        validator=AtLeast(0),
        doc="The maximum size of a batch, after compression by the producer.",
        synonyms=(Synonym("message.max.bytes"),),
    )
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms",
        "long",
        default=HOUR_MS,
        validator=AtLeast(0),
        doc=(
            "The maximum time that a record's CreateTime may be in the future. The broker refuses"
            " batches with a later one."
        ),
        synonyms=(Synonym("log.message.timestamp.after.max.ms"),),
    )
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms",
        "long",
        default=MAX_LONG,
        validator=AtLeast(0),
        doc=(
            "The maximum time that a record's CreateTime may be in the past. The broker refuses"
            " batches with an earlier one."
        ),
        synonyms=(Synonym("log.message.timestamp.before.max.ms"),),
    )
    message_timestamp_type: str = setting(
        "message.timestamp.type",
        "string",
        default="CreateTime",
        validator=OneOf(("CreateTime", "LogAppendTime")),
        doc=(
            "The timestamp of records: the producer's (CreateTime), or the time of the append"
            " (LogAppendTime)."
        ),
        synonyms=(Synonym("log.message.timestamp.type"),),
    )
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio",
        "double",
        default=0.5,
        validator=Between(0, 1),
        doc="The fraction of a log that must be uncompacted before it is compacted again.",
        synonyms=(Synonym("log.cleaner.min.cleanable.ratio"),),
    )
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms",
        "long",
        default=0,
        validator=AtLeast(0),
        doc="The minimum time that a record of a compacted topic stays uncompacted.",
        synonyms=(Synonym("log.cleaner.min.compaction.lag.ms"),),
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        "int",
        default=1,
        validator=AtLeast(1),
        doc="The minimum number of in-sync replicas for a produce request with acks=all.",
        synonyms=(Synonym("min.insync.replicas"),),
    )
    preallocate: bool = setting(
        "preallocate",
        "boolean",
        default=False,
        doc="Preallocate the full size of a segment on disk when it is created.",
        synonyms=(Synonym("log.preallocate"),),
    )
    remote_log_copy_disable: bool = setting(
        "remote.log.copy.disable",
        "boolean",
        default=False,
        doc="Stop copying segments of a tiered topic to remote storage.",
    )
    remote_log_delete_on_disable: bool = setting(
        "remote.log.delete.on.disable",
        "boolean",
        default=False,
        doc="Delete the remote segments when tiered storage is disabled.",
    )
    remote_storage_enable: bool = setting(
        "remote.storage.enable",
        "boolean",
        default=False,
        doc=(
            "Use tiered storage for the topic: old segments are copied to the object store of"
            " remote.log.storage.url. Of a compacted topic, they are copied when they are clean,"
            " and cleaned there as well; Kafka refuses this."
        ),
    )
    retention_bytes: int = setting(
        "retention.bytes",
        "long",
        default=-1,
        doc=(
            "The maximum size of a partition. The broker deletes old segments while it is larger."
            " -1 means no limit."
        ),
        synonyms=(Synonym("log.retention.bytes"),),
    )
    retention_ms: int = setting(
        "retention.ms",
        "long",
        default=7 * 24 * HOUR_MS,
        validator=AtLeast(-1),
        doc=(
            "The broker deletes segments whose newest record is older than this. -1 means no limit."
        ),
        resolve=_retention_ms,
        synonyms=(
            Synonym("log.retention.ms"),
            Synonym("log.retention.minutes", MINUTE_MS),
            Synonym("log.retention.hours", HOUR_MS),
        ),
    )
    segment_bytes: int = setting(
        "segment.bytes",
        "int",
        default=1024 * 1024 * 1024,
        validator=AtLeast(1024 * 1024),
        doc="The maximum size of a segment. Then a new one is created.",
        synonyms=(Synonym("log.segment.bytes"),),
    )
    segment_index_bytes: int = setting(
        "segment.index.bytes",
        "int",
        default=10 * 1024 * 1024,
        validator=AtLeast(4),
        doc=(
            "The maximum size of a segment's offset index, preallocated while the segment is"
            " active. When it is full, a new segment is created."
        ),
        synonyms=(Synonym("log.index.size.max.bytes"),),
    )
    segment_jitter_ms: int = setting(
        "segment.jitter.ms",
        "long",
        default=0,
        validator=AtLeast(0),
        doc=(
            "The maximum random time to subtract from segment.ms, so that logs do not all roll at"
            " the same time."
        ),
        synonyms=(Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", HOUR_MS)),
    )
    segment_ms: int = setting(
        "segment.ms",
        "long",
        default=7 * 24 * HOUR_MS,
        validator=AtLeast(1),
        doc=(
            "The maximum age of the active segment. Then a new one is created, even if it is not"
            " full."
        ),
        synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS)),
    )
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        "boolean",
        default=False,
        doc=(
            "Allow a replica that is not in sync to become leader if no other is left. This can"
            " lose records."
        ),
        synonyms=(Synonym("unclean.leader.election.enable"),),
    )
    internal_segment_bytes: int | None = setting(
        "internal.segment.bytes",
        "int",
        default=None,
        validator=AtLeast(1),
        doc="Overrides segment.bytes, without a minimum. For tests with many small segments.",
        internal=True,
        synonyms=(Synonym("internal.segment.bytes"),),
    )

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def has_lists(self) -> bool:
        """Whether there are lists of replicas, which have no limit in length."""
        return bool(
            self.leader_replication_throttled_replicas
            or self.follower_replication_throttled_replicas
        )

    @property
    def max_segment_ms(self) -> int:
        """The maximum age of the active segment, which compaction's maximum lag may shorten."""
        if self.compacts and self.max_compaction_lag_ms > 0:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms

    def check(self) -> Iterator[str]:
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            yield (
                "conflict topic config setting min.compaction.lag.ms"
                f" ({self.min_compaction_lag_ms}) > max.compaction.lag.ms"
                f" ({self.max_compaction_lag_ms})"
            )
        if self.remote_storage_enable:
            yield from self._check_tiered()

    def _check_tiered(self) -> Iterator[str]:
        for unit in ("bytes", "ms"):
            total = getattr(self, f"retention_{unit}")
            local = getattr(self, f"local_retention_{unit}")
            invalid = f"Invalid value {local} for configuration local.retention.{unit}: Value must"
            if local == FOLLOW_RETENTION:
                continue
            if self.remote_log_copy_disable and local != total:
                yield (
                    f"When `remote.log.copy.disable` is set to true, the `local.retention.{unit}`"
                    f" and `retention.{unit}` must be set to the identical value because there will"
                    " be no more logs copied to the remote storage."
                )
            elif total != -1 and local == -1:
                yield f"{invalid} not be -1 as retention.{unit} value is set as {total}."
            elif total != -1 and local > total:
                yield f"{invalid} not be more than retention.{unit} property value: {total}"

    @property
    def kept_local_bytes(self) -> int:
        """How many bytes of a tiered topic's partition stay on local disk; -1 for all."""
        local = self.local_retention_bytes
        return self.retention_bytes if local == FOLLOW_RETENTION else local

    @property
    def kept_local_ms(self) -> int:
        """How long records of a tiered topic stay on local disk; -1 for ever."""
        local = self.local_retention_ms
        return self.retention_ms if local == FOLLOW_RETENTION else local

    def replace(self, **changes: object) -> LogConfig:
        """Return a config with these fields changed."""
        changed = LogConfig.__new__(LogConfig)
        for store, value in zip(LogConfig.stores.values(), _fields_of(self), strict=True):
            store(changed, value)
        for field, value in changes.items():
            LogConfig.stores[field](changed, value)
        return changed


_fields_of = attrgetter(*LogConfig.stores)
TOPIC_SETTINGS: dict[str, Setting] = LogConfig.settings
SYNONYMS: dict[str, tuple[Synonym, ...]] = {n: s.synonyms for n, s in TOPIC_SETTINGS.items()}


def broker_defaults(values: Values) -> LogConfig:
    """Return the log settings of a topic without overrides, for the given broker settings."""
    found: dict[str, Value] = {}
    for name, synonyms in SYNONYMS.items():
        for synonym in synonyms:
            value = values.get(synonym.name)
            if value is not None:
                found[name] = value
                if isinstance(value, int) and synonym.unit_ms != 1:
                    found[name] = value * synonym.unit_ms if value >= 0 else value
                break
    config = _with_values(LogConfig(), found)
    errors = (*config.check(), *_check_defaults(config))
    if errors:
        raise ConfigError(*errors)
    return config


def _check_defaults(config: LogConfig) -> Iterator[str]:
    """Yield an error for each broker setting that would be an invalid default.

    The first of several synonyms may be unset, so it has no validator.
    """
    if config.segment_ms < 1:
        yield f"log.roll.ms ({config.segment_ms}) must be at least 1"
    if config.segment_jitter_ms < 0:
        yield f"log.roll.jitter.ms ({config.segment_jitter_ms}) must be at least 0"
    if config.flush_ms < 0:
        yield f"log.flush.interval.ms ({config.flush_ms}) must be at least 0"
    if config.retention_ms == 0:
        yield "log.retention.ms must be at least 1, or -1 for no limit"


def log_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """Return the settings of a topic with these overrides. Raise ConfigError with all mistakes."""
    if not overrides:
        return broker.log_defaults
    parsed = parse_all(TOPIC_SETTINGS, overrides, UNKNOWN_TOPIC_SETTING)
    config = _with_values(broker.log_defaults, parsed)
    errors = tuple(config.check())
    if config.remote_storage_enable and not broker.tiered.remote_log_storage_system_enable:
        errors = (TIER_DISABLED, *errors)
    if errors:
        raise ConfigError(*errors)
    return config


def usable_log_config(
    broker: BrokerConfig, overrides: Mapping[str, str]
) -> tuple[LogConfig, tuple[str, ...]]:
    """Return the settings of a topic as far as this broker can use them, and what is wrong.

    A controller has checked them, but with the settings that it had itself at that time.
    """
    try:
        return log_config(broker, overrides), ()
    except ConfigError as error:
        errors = error.errors
    values: dict[str, Value] = {}
    for name, text in overrides.items():
        try:
            values |= parse_all(TOPIC_SETTINGS, {name: text})
        except ConfigError:
            continue
    config = _with_values(broker.log_defaults, values)
    if config.remote_storage_enable and not broker.tiered.remote_log_storage_system_enable:
        config = config.replace(remote_storage_enable=False)
    return config, errors


def check_turned_off(old: Mapping[str, str], new: LogConfig) -> None:
    """Raise ConfigError if a topic's tier is turned off and its remote segments are not deleted."""
    was_tiered = old.get("remote.storage.enable", "false").strip().lower() == "true"
    if was_tiered and not new.remote_storage_enable and not new.remote_log_delete_on_disable:
        raise ConfigError(
            "It is invalid to disable remote storage without deleting remote data. If you want to"
            " keep the remote data and turn to read only, please set"
            " `remote.storage.enable=true,remote.log.copy.disable=true`. If you want to disable"
            " remote storage and delete all remote data, please set"
            " `remote.storage.enable=false,remote.log.delete.on.disable=true`."
        )


def _with_values(config: LogConfig, values: Values) -> LogConfig:
    given = (TOPIC_SETTINGS[name] for name in values)
    fields = resolved({item.attribute: item for item in given}, values)
    internal = values.get("internal.segment.bytes")
    if internal is not None:
        fields["segment_bytes"] = internal
    return config.replace(**fields)
