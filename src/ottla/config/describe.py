"""Settings for DescribeConfigs: the value, its source and its synonyms.

The value of a topic setting comes from the topic or, through its synonyms, from a dynamic
setting of this broker or of all brokers, from the file, or from the default (KIP-226). Synonyms
are listed in order of precedence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla.config.broker import (
    DECLARED,
    BrokerConfig,
    base_name,
    broker_settings,
    prefixed_setting,
)
from ottla.config.definition import READ_ONLY, ConfigError, Setting, Type, format_value
from ottla.config.group import GROUP_SETTINGS, default_of
from ottla.config.topic import SYNONYMS, TOPIC_SETTINGS

TYPE_NUMBERS: dict[Type, int] = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "class": 8,
    "password": 9,
}


_COARSER: dict[str, tuple[str, ...]] = {
    synonyms[0].name: tuple(synonym.name for synonym in synonyms[1:])
    for synonyms in SYNONYMS.values()
    if len(synonyms) > 1
}
"""Broker settings in milliseconds, and those in minutes and hours that are used without them."""


class Source(IntEnum):
    """The source of a value, with its number in Kafka's protocol."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    FILE = 4
    DEFAULT = 5
    GROUP = 8


class Origin(NamedTuple):
    """One source of a setting's value. Another source may have precedence."""

    name: str
    value: str | None
    source: Source


class Entry(NamedTuple):
    """A setting with its current value."""

    setting: Setting
    value: str | None
    source: Source
    read_only: bool
    synonyms: list[Origin]


def describe_topic(config: BrokerConfig, overrides: Mapping[str, str]) -> list[Entry]:
    """Return all settings of a topic with these overrides, by name."""
    return [
        _topic_entry(config, overrides, setting)
        for setting in sorted(TOPIC_SETTINGS.values())
        if not setting.internal or setting.name in overrides
    ]


def describe_broker(config: BrokerConfig) -> list[Entry]:
    """Return all settings of this broker, by name."""
    prefixed = (prefixed_setting(name) for name in config.static.keys() - broker_settings().keys())
    settings = (*broker_settings().values(), *(each for each in prefixed if each is not None))
    return [
        _broker_entry(config, setting)
        for setting in sorted(settings)
        if not setting.internal or config.is_given(setting.name)
    ]


def describe_all_brokers(config: BrokerConfig) -> list[Entry]:
    """Return the dynamic settings of all brokers."""
    entries = []
    for name, text in sorted(config.cluster_wide.items()):
        setting = broker_settings()[name]
        origin = _origin(setting, text, Source.ALL_BROKERS)
        entries.append(Entry(setting, origin.value, origin.source, False, [origin]))
    return entries


def describe_group(config: BrokerConfig, overrides: Mapping[str, str]) -> list[Entry]:
    """Return all settings of a group with these overrides, by name."""
    entries = []
    for name, setting in sorted(GROUP_SETTINGS.items()):
        origins = list(_origins(config, DECLARED[default_of(name)]))
        value = format_value(config.values[default_of(name)])
        if name in overrides:
            value = overrides[name]
            origins.insert(0, Origin(name, value, Source.GROUP))
        entries.append(Entry(setting, value, origins[0].source, False, origins))
    return entries


def _topic_entry(config: BrokerConfig, overrides: Mapping[str, str], setting: Setting) -> Entry:
    origins = list(_broker_origins(config, setting.name))
    text = overrides.get(setting.name)
    if text is not None:
        value = _shown(setting, text)
        origins.insert(0, Origin(setting.name, value, Source.TOPIC))
    elif setting.internal:
        value = None
    else:
        value = format_value(_from_broker(config, setting))
    source = origins[0].source if origins else Source.DEFAULT
    return Entry(setting, value, source, False, origins)


def _shown(setting: Setting, text: str) -> str | None:
    """Return a value as Kafka shows it, or its text if it cannot be used here."""
    try:
        return format_value(setting.parse(text))
    except ConfigError:
        return text


def _from_broker(
    config: BrokerConfig, setting: Setting
) -> bool | int | float | str | tuple[str, ...]:
    value: bool | int | float | str | tuple[str, ...] | frozenset[str]
    value = getattr(config.log_defaults, setting.attribute)
    # The items of a set, in the order of the broker setting.
    if isinstance(value, frozenset):
        words = config.values[SYNONYMS[setting.name][0].name]
        return words if isinstance(words, tuple) else tuple(sorted(value))
    return value


def _broker_origins(config: BrokerConfig, topic_setting: str) -> Iterator[Origin]:
    """Yield the sources of the broker's default of a topic setting.

    As in Kafka, the default of a coarser synonym (hours) is never the first source.
    """
    synonyms = SYNONYMS[topic_setting]
    origins = [
        origin for synonym in synonyms for origin in _origins(config, DECLARED[synonym.name])
    ]
    if origins and origins[0].source == Source.DEFAULT and origins[0].name != synonyms[0].name:
        return
    yield from origins


def _broker_entry(config: BrokerConfig, setting: Setting) -> Entry:
    origins = list(_origins(config, setting))
    if origins:
        for name in _others(setting.name):
            origins.extend(_origins(config, broker_settings()[name]))
    value = None if setting.sensitive else format_value(config.value_of(setting))
    source = origins[0].source if origins else Source.DEFAULT
    return Entry(setting, value, source, setting.update == READ_ONLY, origins)


def _others(name: str) -> tuple[str, ...]:
    """Return the settings that are used if this one is not set."""
    base = base_name(name)
    return _COARSER.get(name, ()) if base is None else (base,)


def _origins(config: BrokerConfig, setting: Setting) -> Iterator[Origin]:
    name = setting.name
    for texts, source in (
        (config.per_broker, Source.BROKER),
        (config.cluster_wide, Source.ALL_BROKERS),
        (config.static, Source.FILE),
    ):
        if name in texts:
            yield _origin(setting, texts[name], source)
    if setting.default is not None:
        yield _origin(setting, format_value(setting.default), Source.DEFAULT)


def _origin(setting: Setting, text: str | None, source: Source) -> Origin:
    return Origin(setting.name, None if setting.sensitive else text, source)
