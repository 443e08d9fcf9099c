"""`BrokerConfig`: the settings of a broker, from its file and from dynamic changes.

It has a part for each component: `config.offsets.offsets_retention_minutes`. To add a broker
setting, add a field to its component in broker_settings/.

The first source that has a value wins: the dynamic setting of this broker, the dynamic setting
of the whole cluster, the file, the default (KIP-226). A BrokerConfig is immutable: `with_dynamic`
returns a new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ottla.config.broker_settings.accepted import ACCEPTED, UNSUPPORTED, UNSUPPORTED_PREFIXES
from ottla.config.broker_settings.consumer_groups import ConsumerGroupConfig
from ottla.config.broker_settings.fetch import FetchConfig
from ottla.config.broker_settings.groups import GroupConfig
from ottla.config.broker_settings.metadata_log import MetadataLogConfig
from ottla.config.broker_settings.network import NetworkConfig
from ottla.config.broker_settings.node import NodeConfig
from ottla.config.broker_settings.offsets import OffsetsConfig
from ottla.config.broker_settings.producer_ids import ProducerIdConfig
from ottla.config.broker_settings.storage import StorageConfig
from ottla.config.broker_settings.topics import TopicsConfig
from ottla.config.component import Component
from ottla.config.definition import CLUSTER_WIDE, ConfigError, Setting, Value, Values, parse_all
from ottla.config.topic import LogConfig, broker_defaults

COMPONENTS: dict[str, type[Component]] = {
    "node": NodeConfig,
    "network": NetworkConfig,
    "fetch": FetchConfig,
    "topics": TopicsConfig,
    "storage": StorageConfig,
    "metadata_log": MetadataLogConfig,
    "producer_ids": ProducerIdConfig,
    "groups": GroupConfig,
    "consumer_groups": ConsumerGroupConfig,
    "offsets": OffsetsConfig,
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
    *ACCEPTED,
)
BROKER_SETTINGS: dict[str, Setting] = {setting.name: setting for setting in _DECLARED}
assert len(BROKER_SETTINGS) == len(_DECLARED), "a setting is declared twice"
_DEFAULTS: dict[str, Value] = {name: s.default for name, s in BROKER_SETTINGS.items()}


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
    metadata_log: MetadataLogConfig
    producer_ids: ProducerIdConfig
    groups: GroupConfig
    consumer_groups: ConsumerGroupConfig
    offsets: OffsetsConfig
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
            static=dict(static or {}),
            cluster_wide=dict(cluster_wide or {}),
            per_broker=dict(per_broker or {}),
            values=values,
        )
        # Both names of the id are described with the id that is used.
        values["node.id"] = values["broker.id"] = self.node.node_id

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
    return values


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
