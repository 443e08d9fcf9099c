"""`BrokerConfig`: the settings of a broker, from its file and from dynamic changes.

The first source that has a value wins: the dynamic setting of this broker, the dynamic setting
of the whole cluster, the file, the default (KIP-226). Every setting is an attribute with
underscores instead of dots. A few are derived: `listeners` are parsed, `log_dirs` and `node_id`
are resolved. A BrokerConfig is immutable: `with_dynamic` returns a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from ottla.config.accepted import ACCEPTED, UNSUPPORTED, UNSUPPORTED_PREFIXES
from ottla.config.consumer_group_settings import CONSUMER_GROUPS, check_consumer_groups
from ottla.config.definition import (
    CLUSTER_WIDE,
    ConfigError,
    Setting,
    Value,
    parse_all,
    split_list,
)
from ottla.config.group_settings import GROUPS, OFFSETS, check_session_timeouts
from ottla.config.listeners import (
    Endpoint,
    check_advertised,
    check_bindable,
    parse_endpoints,
    parse_protocol_map,
)
from ottla.config.settings import IDENTITY, LOGS, NETWORK, TOPICS
from ottla.config.topic import SYNONYMS, TOPIC_SETTINGS, LogConfig, broker_defaults, check_together

DEFAULT_NODE_ID = 1


def _topic_defaults() -> list[Setting]:
    """Return the broker settings that are the defaults of topic settings: their first synonyms."""
    settings = []
    for name, synonyms in SYNONYMS.items():
        if synonyms:
            topic = TOPIC_SETTINGS[name]
            # If there are coarser synonyms (hours), the first one must be able to be unset.
            default, validator = (
                (topic.default, topic.validator) if len(synonyms) == 1 else (None, None)
            )
            settings.append(
                Setting(
                    synonyms[0].name,
                    topic.type,
                    default,
                    validator,
                    f"The default of the topic setting {name}. {topic.doc}",
                    "high",
                    CLUSTER_WIDE,
                    topic.effective,
                    topic.internal,
                )
            )
    return settings


_DECLARED = (
    *IDENTITY,
    *NETWORK,
    *TOPICS,
    *LOGS,
    *GROUPS,
    *CONSUMER_GROUPS,
    *OFFSETS,
    *_topic_defaults(),
    *ACCEPTED,
)
BROKER_SETTINGS: dict[str, Setting] = {setting.name: setting for setting in _DECLARED}
assert len(BROKER_SETTINGS) == len(_DECLARED), "a setting is declared twice"
_DEFAULTS: dict[str, Value] = {name: s.default for name, s in BROKER_SETTINGS.items()}


class BrokerConfig:
    """The settings of one broker. Without arguments, all have their defaults."""

    node_id: int
    cluster_id: str | None
    broker_rack: str | None
    listeners: tuple[Endpoint, ...]
    advertised_listeners: tuple[Endpoint, ...]
    inter_broker_listener_name: str
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: Mapping[str, int]
    connections_max_idle_ms: int
    queued_max_request_bytes: int
    max_incremental_fetch_session_cache_slots: int
    fetch_max_bytes: int
    max_request_partition_size_limit: int
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    num_partitions: int
    default_replication_factor: int
    log_dirs: tuple[str, ...]
    metadata_log_max_record_bytes_between_snapshots: int
    metadata_log_max_snapshot_interval_ms: int
    metadata_log_segment_bytes: int
    metadata_log_segment_ms: int
    metadata_max_retention_bytes: int
    metadata_max_retention_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    log_retention_check_interval_ms: int
    log_initial_task_delay_ms: int
    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int
    log_defaults: LogConfig
    group_initial_rebalance_delay_ms: int
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    offset_metadata_max_bytes: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    offsets_topic_compression_codec: int
    group_coordinator_rebalance_protocols: tuple[str, ...]
    group_consumer_assignors: tuple[str, ...]
    group_consumer_migration_policy: str
    group_consumer_max_size: int
    group_consumer_session_timeout_ms: int
    group_consumer_min_session_timeout_ms: int
    group_consumer_max_session_timeout_ms: int
    group_consumer_heartbeat_interval_ms: int
    group_consumer_min_heartbeat_interval_ms: int
    group_consumer_max_heartbeat_interval_ms: int
    group_consumer_assignment_interval_ms: int
    group_consumer_min_assignment_interval_ms: int
    group_consumer_max_assignment_interval_ms: int

    def __init__(
        self,
        static: Mapping[str, str] | None = None,
        cluster_wide: Mapping[str, str] | None = None,
        per_broker: Mapping[str, str] | None = None,
    ) -> None:
        self.static = dict(static or {})
        self.cluster_wide = dict(cluster_wide or {})
        self.per_broker = dict(per_broker or {})
        values = _parse({**self.static, **self.cluster_wide, **self.per_broker})
        self.__dict__.update((name.replace(".", "_"), value) for name, value in values.items())
        self.__dict__.update(_derive(values))
        self.values: Mapping[str, Value] = values | dict.fromkeys(
            ("node.id", "broker.id"), self.node_id
        )

    def is_given(self, name: str) -> bool:
        """Return True if the setting comes from the file or from a dynamic change."""
        return name in self.static or name in self.cluster_wide or name in self.per_broker

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """Return the config for Kafka's properties. Raise ConfigError that names all mistakes."""
        return cls(properties)

    def with_dynamic(
        self, cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]
    ) -> BrokerConfig:
        """Return a config with the same file and these dynamic settings. Raise ConfigError."""
        return BrokerConfig(self.static, cluster_wide, per_broker)


def _parse(texts: Mapping[str, str]) -> dict[str, Value]:
    refused = {n for n in texts if n in UNSUPPORTED or n.startswith(UNSUPPORTED_PREFIXES)}
    errors = [f"The setting {name} is not supported by this broker" for name in sorted(refused)]
    try:
        values = parse_all(BROKER_SETTINGS, {n: t for n, t in texts.items() if n not in refused})
    except ConfigError as error:
        errors.extend(error.errors)
    if errors:
        raise ConfigError(*errors)
    return {**_DEFAULTS, **values}


def _derive(values: Mapping[str, Value]) -> dict[str, object]:
    """Return the derived attributes, after the checks that involve several settings."""
    errors: list[str] = []
    derived: dict[str, object] = {}
    for derivation in (
        _node,
        _roles,
        _listeners,
        _connections,
        _logs,
        check_session_timeouts,
        check_consumer_groups,
    ):
        try:
            derived.update(derivation(values))
        except ConfigError as error:
            errors.extend(error.errors)
    if errors:
        raise ConfigError(*errors)
    return derived


def _node(values: Mapping[str, Value]) -> dict[str, object]:
    node_id, broker_id = cast(int | None, values["node.id"]), cast(int, values["broker.id"])
    if node_id is not None and broker_id not in (-1, node_id):
        raise ConfigError(f"node.id ({node_id}) and broker.id ({broker_id}) must be the same")
    if node_id is None:
        node_id = DEFAULT_NODE_ID if broker_id == -1 else broker_id
    voters = cast(tuple[str, ...], values["controller.quorum.voters"])
    if voters and [voter.partition("@")[0] for voter in voters] != [str(node_id)]:
        raise ConfigError(
            f"controller.quorum.voters must name this node alone ({node_id}@host:port):"
            " clusters of several nodes are not supported yet"
        )
    return {"node_id": node_id}


def _roles(values: Mapping[str, Value]) -> dict[str, object]:
    roles = cast(tuple[str, ...], values["process.roles"])
    # A file for Kafka with ZooKeeper has no roles. This broker accepts it.
    if roles and set(roles) != {"broker", "controller"}:
        raise ConfigError(
            f"Invalid value {','.join(roles)!r} for process.roles: this node is always"
            " broker,controller; nodes with one role are not supported yet"
        )
    return {"process_roles": ("broker", "controller")}


def _listeners(values: Mapping[str, Value]) -> dict[str, object]:
    controllers = {n.upper() for n in cast(tuple[str, ...], values["controller.listener.names"])}
    protocols = dict.fromkeys(controllers, "PLAINTEXT")
    protocols.update(parse_protocol_map(cast(str, values["listener.security.protocol.map"])))
    texts = cast(tuple[str, ...], values["listeners"])
    bound = _for_clients(parse_endpoints("listeners", texts, protocols), controllers)
    check_bindable(bound)
    told = cast(tuple[str, ...] | None, values["advertised.listeners"])
    advertised = bound
    if told:
        endpoints = parse_endpoints("advertised.listeners", told, protocols)
        advertised = _for_clients(endpoints, controllers)
    check_advertised(advertised, bound)
    return {
        "listeners": bound,
        "advertised_listeners": advertised,
        "inter_broker_listener_name": _inter_broker(values, advertised),
    }


def _for_clients(endpoints: tuple[Endpoint, ...], controllers: set[str]) -> tuple[Endpoint, ...]:
    return tuple(endpoint for endpoint in endpoints if endpoint.listener_name not in controllers)


def _inter_broker(values: Mapping[str, Value], advertised: tuple[Endpoint, ...]) -> str:
    names = [endpoint.listener_name for endpoint in advertised]
    given = cast(str | None, values["inter.broker.listener.name"])
    if given is None:
        default = cast(str, values["security.inter.broker.protocol"])
        return default if default in names else names[0]
    if given.upper() not in names:
        raise ConfigError(
            f"Invalid value {given!r} for inter.broker.listener.name: it must be"
            f" one of {', '.join(names)}"
        )
    return given.upper()


def _connections(values: Mapping[str, Value]) -> dict[str, object]:
    overrides: dict[str, int] = {}
    for entry in split_list(cast(str, values["max.connections.per.ip.overrides"])):
        host, colon, limit = entry.rpartition(":")
        if not (host and colon and limit.isascii() and limit.isdigit()):
            raise ConfigError(
                f"Invalid entry {entry!r} in max.connections.per.ip.overrides: write it as"
                " host:limit"
            )
        overrides[host.strip("[]")] = int(limit)
    if values["max.connections.per.ip"] == 0 and not overrides:
        raise ConfigError(
            "max.connections.per.ip may be 0 only together with max.connections.per.ip.overrides"
        )
    queued = cast(int, values["queued.max.request.bytes"])
    if 0 < queued < cast(int, values["socket.request.max.bytes"]):
        raise ConfigError(
            f"queued.max.request.bytes ({queued}) must be at least socket.request.max.bytes"
            f" ({values['socket.request.max.bytes']}), or -1"
        )
    return {"max_connections_per_ip_overrides": overrides}


def _logs(values: Mapping[str, Value]) -> dict[str, object]:
    own = values["log.dirs"]
    dirs = cast(tuple[str, ...], values["log.dir"] if own is None else own)
    if not dirs or "" in dirs:
        raise ConfigError("log.dirs must name at least one directory")
    if len(set(dirs)) != len(dirs):
        raise ConfigError(f"log.dirs names a directory twice: {','.join(dirs)}")
    defaults = broker_defaults(values)
    check_together(defaults)
    if defaults.segment_ms < 1:
        raise ConfigError(f"log.roll.ms ({defaults.segment_ms}) must be at least 1")
    if defaults.segment_jitter_ms < 0:
        raise ConfigError(f"log.roll.jitter.ms ({defaults.segment_jitter_ms}) must be at least 0")
    if defaults.flush_ms < 0:
        raise ConfigError(f"log.flush.interval.ms ({defaults.flush_ms}) must be at least 0")
    if defaults.retention_ms == 0:
        raise ConfigError("log.retention.ms must be at least 1, or -1 for no limit")
    return {"log_dirs": dirs, "log_defaults": defaults}
