"""`BrokerConfig`: the settings of a broker, from its file and from dynamic changes.

It has a part for each component: `config.offsets.offsets_retention_minutes`. To add a broker
setting, add a field to its component in broker_settings/.

The first source that has a value wins: the dynamic setting of this broker, the dynamic setting
of the whole cluster, the file, the default (KIP-226). A BrokerConfig is immutable: `with_dynamic`
returns a new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from ottla.config.broker_settings.cleaner import CleanerConfig
from ottla.config.broker_settings.consumer_groups import ConsumerGroupConfig
from ottla.config.broker_settings.controller_quorum import ControllerQuorumConfig
from ottla.config.broker_settings.fetch import FetchConfig
from ottla.config.broker_settings.groups import GroupConfig
from ottla.config.broker_settings.membership import MembershipConfig
from ottla.config.broker_settings.metadata_log import MetadataLogConfig
from ottla.config.broker_settings.network import NetworkConfig
from ottla.config.broker_settings.node import NodeConfig
from ottla.config.broker_settings.offsets import OffsetsConfig
from ottla.config.broker_settings.producer_ids import ProducerIdConfig
from ottla.config.broker_settings.replication import ReplicationConfig
from ottla.config.broker_settings.storage import StorageConfig
from ottla.config.broker_settings.tiered_storage import TieredStorageConfig
from ottla.config.broker_settings.topics import TopicsConfig
from ottla.config.broker_settings.transaction_verification import TransactionVerificationConfig
from ottla.config.broker_settings.transactions import TransactionsConfig
from ottla.config.component import Component
from ottla.config.definition import (
    CLUSTER_WIDE,
    READ_ONLY,
    ConfigError,
    Setting,
    Value,
    Values,
    parse_all,
)
from ottla.config.topic import LogConfig, broker_defaults

COMPONENTS: dict[str, type[Component]] = {
    "node": NodeConfig,
    "network": NetworkConfig,
    "fetch": FetchConfig,
    "topics": TopicsConfig,
    "storage": StorageConfig,
    "cleaner": CleanerConfig,
    "tiered": TieredStorageConfig,
    "metadata_log": MetadataLogConfig,
    "quorum": ControllerQuorumConfig,
    "membership": MembershipConfig,
    "replication": ReplicationConfig,
    "producer_ids": ProducerIdConfig,
    "groups": GroupConfig,
    "consumer_groups": ConsumerGroupConfig,
    "offsets": OffsetsConfig,
    "transactions": TransactionsConfig,
    "transaction_verification": TransactionVerificationConfig,
}
"""The parts of a BrokerConfig that declare settings, by the name of their field."""


def _topic_defaults() -> Iterator[Setting]:
    """Yield the broker settings that are the defaults of topic settings: their first synonyms."""
    for topic in LogConfig.settings.values():
        if topic.synonyms:
            # If there are coarser synonyms (hours), the first one must be able to be unset.
            is_only = len(topic.synonyms) == 1
            yield Setting(
                topic.synonyms[0].name,
                topic.type,
                topic.default if is_only else None,
                topic.validator if is_only else None,
                f"The default of the topic setting {topic.name}. {topic.doc}",
                "high",
                CLUSTER_WIDE,
                topic.effective,
                topic.internal,
            )


_DECLARED = (
    *(setting for component in COMPONENTS.values() for setting in component.settings.values()),
    *_topic_defaults(),
)
DECLARED: dict[str, Setting] = {setting.name: setting for setting in _DECLARED}
"""The settings that components declare, by name."""
assert len(DECLARED) == len(_DECLARED), "a setting is declared twice"
_DEFAULTS: dict[str, Value] = {name: s.default for name, s in DECLARED.items()}
_LISTENER_PREFIX = "listener.name."


@cache
def broker_settings() -> Mapping[str, Setting]:
    """Return all settings that Kafka's brokers have, with those that have no effect here."""
    from ottla.config.broker_settings.accepted import ACCEPTED  # large: only when it is needed

    assert DECLARED.keys().isdisjoint(ACCEPTED), "a setting is declared twice"
    return {**DECLARED, **ACCEPTED}


class BrokerConfig(Component):
    """The settings of one broker. Without arguments, all have their defaults.

    `log_defaults` are the settings of a topic that sets none. DescribeConfigs needs the texts of
    each source (`static` is the file), and the parsed `values` of all settings.
    """

    node: NodeConfig
    network: NetworkConfig
    fetch: FetchConfig
    topics: TopicsConfig
    storage: StorageConfig
    cleaner: CleanerConfig
    tiered: TieredStorageConfig
    metadata_log: MetadataLogConfig
    quorum: ControllerQuorumConfig
    membership: MembershipConfig
    replication: ReplicationConfig
    producer_ids: ProducerIdConfig
    groups: GroupConfig
    consumer_groups: ConsumerGroupConfig
    offsets: OffsetsConfig
    transactions: TransactionsConfig
    transaction_verification: TransactionVerificationConfig
    log_defaults: LogConfig
    static: Mapping[str, str]
    cluster_wide: Mapping[str, str]
    per_broker: Mapping[str, str]
    values: Values

    def __init__(
        self,
        static: Mapping[str, str] | None = None,
        cluster_wide: Mapping[str, str] | None = None,
        per_broker: Mapping[str, str] | None = None,
    ) -> None:
        texts = {**(static or {}), **(cluster_wide or {}), **(per_broker or {})}
        given = _parse(texts)
        values = {**_DEFAULTS, **given}
        super().__init__(
            **_parts(values, given),
            static=_with_both_ids(static or {}),
            cluster_wide=dict(cluster_wide or {}),
            per_broker=dict(per_broker or {}),
            values=values,
        )
        errors = tuple(self._check_controller())
        if errors:
            raise ConfigError(*errors)
        # Both names of the id are described with the id that is used.
        values["node.id"] = values["broker.id"] = self.node.node_id

    @property
    def is_alone(self) -> bool:
        """True if this node is a cluster of its own: a broker with a quorum of one."""
        quorum, node = self.quorum, self.node
        if quorum.controller_quorum_bootstrap_servers or "broker" not in node.process_roles:
            return False
        return all(voter.node_id == node.node_id for voter in quorum.controller_quorum_voters)

    def _check_controller(self) -> Iterator[str]:
        """Yield an error for each setting without which nobody can reach this controller."""
        if self.is_alone or "controller" not in self.node.process_roles:
            return
        quorum = self.quorum
        if not (quorum.controller_quorum_voters or quorum.controller_quorum_bootstrap_servers):
            yield (
                "process.roles=controller needs controller.quorum.voters or"
                " controller.quorum.bootstrap.servers"
            )
        if not self.network.controller_listener_names:
            yield "controller.listener.names must name the listener of this controller"

    def value_of(self, setting: Setting) -> Value:
        """Return the value of a broker setting."""
        return self.values.get(setting.name, setting.default)

    def ignored(self) -> list[str]:
        """Return the settings of the file that have no effect and not their default."""
        return [name for name in self.static if self._is_ignored(name)]

    def _is_ignored(self, name: str) -> bool:
        setting = DECLARED.get(name) or broker_settings().get(name)
        if setting is None:  # of one listener, or of a plug-in
            return True
        return not setting.effective and self.value_of(setting) not in ("", setting.default)

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

    def with_usable(
        self, cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]
    ) -> BrokerConfig:
        """Return a config with the dynamic settings that are valid together with this file.

        If each of them is valid, but not all together, return a config without any.
        """
        try:
            return self.with_dynamic(self._usable(cluster_wide), self._usable(per_broker))
        except ConfigError:
            return self.with_dynamic({}, {})

    def _usable(self, dynamic: Mapping[str, str]) -> dict[str, str]:
        usable = {}
        for name, text in dynamic.items():
            try:
                self.with_dynamic({name: text}, {})
            except ConfigError:
                continue
            usable[name] = text
        return usable


def _with_both_ids(static: Mapping[str, str]) -> dict[str, str]:
    """Return the file's settings. As in Kafka, node.id and broker.id stand for each other."""
    node_id = static.get("node.id", static.get("broker.id"))
    return dict(static) if node_id is None else {**static, "node.id": node_id, "broker.id": node_id}


def _parse(texts: Mapping[str, str]) -> dict[str, Value]:
    if DECLARED.keys() >= texts.keys():
        return parse_all(DECLARED, texts)
    known = broker_settings()
    found = {name: prefixed_setting(name) for name in texts.keys() - known.keys()}
    return parse_all({**known, **{name: s for name, s in found.items() if s is not None}}, texts)


def prefixed_setting(name: str) -> Setting | None:
    """Return the setting of one listener, or of a plug-in of Kafka. None if there is none."""
    from ottla.config.broker_settings.accepted import PREFIXES

    if name.startswith(PREFIXES):
        return Setting(name, "password", None, None, "For a plug-in of Kafka.", effective=False)
    base = base_name(name)
    if base is None:
        return None
    setting = broker_settings()[base]
    return setting._replace(name=name, default=None, update=READ_ONLY, effective=False)


def base_name(name: str) -> str | None:
    """Return the setting of all listeners that belongs to the setting of one listener."""
    if not name.startswith(_LISTENER_PREFIX):
        return None
    # listener.name.{listener}.{setting}, or with a SASL mechanism before the setting
    rest = name.removeprefix(_LISTENER_PREFIX).partition(".")[2]
    names = (rest, rest.partition(".")[2])
    return next((found for found in names if found in broker_settings()), None)


def _parts(values: Values, given: Values) -> dict[str, Component]:
    """Return the parts of a BrokerConfig. Raise ConfigError with the mistakes of all parts."""
    parts: dict[str, Component] = {}
    errors: list[str] = []
    for name, component in COMPONENTS.items():
        try:
            is_default = component.settings.keys().isdisjoint(given)
            parts[name] = component() if is_default else component.parse(values)
        except ConfigError as error:
            errors.extend(error.errors)
    try:
        parts["log_defaults"] = broker_defaults(given)
    except ConfigError as error:
        errors.extend(error.errors)
    if errors:
        raise ConfigError(*errors)
    return parts
