"""Changes of dynamic settings of topics, brokers and groups (KIP-226, KIP-339, KIP-848).

AlterConfigs gives all settings of a resource anew; IncrementalAlterConfigs changes some.
Both end in the same check of the settings the resource would have, so nothing is stored
that could not be used. As in Kafka a bad setting of a topic or a group is INVALID_CONFIG and
a bad broker setting INVALID_REQUEST.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.config.broker import BROKER_SETTINGS, BrokerConfig
from ottla.config.definition import (
    PER_BROKER,
    READ_ONLY,
    ConfigError,
    Setting,
    format_value,
    split_list,
    unknown_setting,
)
from ottla.config.group import GROUP_SETTINGS
from ottla.config.topic import TOPIC_SETTINGS, log_config
from ottla.controller.decision import Decision, check_number, plain
from ottla.controller.group_configs import check_group_config, check_group_name
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import ConfigRecord
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.resources import ResourceType
from ottla.model.topic_names import check_topic_name
from ottla.wire.message import Message

SET = 0
DELETE = 1
APPEND = 2
SUBTRACT = 3
_VERBS = {APPEND: "append to", SUBTRACT: "subtract from"}


class ConfigOperation(NamedTuple):
    """One change of a setting."""

    name: str
    operation: int
    value: str | None


class ConfigChange(NamedTuple):
    """Changes of some settings of a resource; with `replace`, all others are removed."""

    resource_type: int
    resource_name: str
    operations: Sequence[ConfigOperation]
    replace: bool = False


class ChangedConfig(NamedTuple):
    """The result for one resource."""

    resource_type: int
    resource_name: str
    error: ApiError | None = None


def replacement(
    resource_type: int, resource_name: str, configs: Iterable[tuple[str, str | None]]
) -> ConfigChange:
    """Return the change that leaves a resource with exactly these settings."""
    operations = [ConfigOperation(name, SET, value) for name, value in configs]
    return ConfigChange(resource_type, resource_name, operations, replace=True)


def alter_configs(
    image: MetadataImage, config: BrokerConfig, changes: Sequence[ConfigChange]
) -> Decision[ChangedConfig]:
    """Decide about changes of settings: one result for each change, in order."""
    times = Counter((change.resource_type, change.resource_name) for change in changes)
    records: list[Message] = []
    results: list[ChangedConfig] = []
    for change in changes:
        resource = (change.resource_type, change.resource_name)
        try:
            if times[resource] > 1:
                raise _invalid("The request has this resource twice")
            check_number(len(results) + 1, "resources")
            records.extend(_alter(image, config, change))
            results.append(ChangedConfig(*resource))
        except ApiError as error:
            results.append(ChangedConfig(*resource, plain(error)))
    return Decision(records, results)


def _alter(image: MetadataImage, config: BrokerConfig, change: ConfigChange) -> list[Message]:
    _check_operations(change.operations)
    settings = _settings_of(change, config)
    old = image.config_of(change.resource_type, change.resource_name)
    new = _apply(old, change, settings)
    if change.resource_type == ResourceType.TOPIC:
        _check_topic(image, config, change.resource_name, new)
    elif change.resource_type == ResourceType.GROUP:
        check_group_config(config, new)
    else:
        _check_broker(image, config, change, new)
    return [
        ConfigRecord(
            resource_type=change.resource_type,
            resource_name=change.resource_name,
            name=name,
            value=new.get(name),
        )
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
    ]


def _check_operations(operations: Sequence[ConfigOperation]) -> None:
    times = Counter(operation.name for operation in operations)
    for name, operation, value in operations:
        if times[name] > 1:
            raise _invalid(f"The setting {name} is there twice")
        if operation not in (SET, DELETE, APPEND, SUBTRACT):
            raise _invalid(f"The setting {name} has the unknown operation {operation}")
        if value is None and operation != DELETE:
            raise _invalid(f"The setting {name} has no value; use a delete to take it back")


def _settings_of(change: ConfigChange, config: BrokerConfig) -> Mapping[str, Setting]:
    """Return the settings that this kind of resource has; ApiError for a wrong resource."""
    kind, name = change.resource_type, change.resource_name
    if kind == ResourceType.TOPIC:
        check_topic_name(name)
        return TOPIC_SETTINGS
    if kind == ResourceType.BROKER:
        check_broker_name(name, config)
        return BROKER_SETTINGS
    if kind == ResourceType.GROUP:
        check_group_name(name)
        return GROUP_SETTINGS
    raise unsupported_resource(kind)


def check_broker_name(name: str, config: BrokerConfig) -> None:
    """Raise INVALID_REQUEST unless the resource is this broker or "" for all brokers."""
    if name and name != str(config.node.node_id):
        raise _invalid(f"This is broker {config.node.node_id}, not {name!r}: ask that broker")


def unsupported_resource(kind: int) -> ApiError:
    """Return the error for a kind of resource that has no settings here."""
    if kind == ResourceType.BROKER_LOGGER:
        return _invalid("This broker has no log4j loggers whose level could be changed")
    if kind == ResourceType.CLIENT_METRICS:
        return _invalid("Settings of client metrics are not supported")
    return _invalid(f"Unknown resource type {kind}")


def _apply(
    old: Mapping[str, str], change: ConfigChange, settings: Mapping[str, Setting]
) -> dict[str, str]:
    new = {} if change.replace else dict(old)
    for name, operation, value in change.operations:
        if operation == DELETE or value is None:
            new.pop(name, None)
        elif operation == SET:
            new[name] = value
        else:
            new[name] = _edit_list(settings, name, operation, new.get(name), value)
    return new


def _edit_list(
    settings: Mapping[str, Setting], name: str, operation: int, old: str | None, value: str
) -> str:
    setting = settings.get(name)
    if setting is None:
        raise ApiError(ErrorCode.INVALID_CONFIG, unknown_setting(name, settings))
    if setting.type != "list":
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot {_VERBS[operation]} {name}: it is of type {setting.type}, not a list",
        )
    parts = list(split_list(format_value(setting.default) or "" if old is None else old))
    words = split_list(value)
    if operation == APPEND:
        parts.extend(word for word in dict.fromkeys(words) if word not in parts)
    else:
        parts = [part for part in parts if part not in words]
    return ",".join(parts)


def _check_topic(
    image: MetadataImage, config: BrokerConfig, name: str, new: Mapping[str, str]
) -> None:
    try:
        log_config(config, new)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, "; ".join(error.errors)) from error
    if name not in image.topics:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name}")


def _check_broker(
    image: MetadataImage, config: BrokerConfig, change: ConfigChange, new: Mapping[str, str]
) -> None:
    own = str(config.node.node_id)
    for name in new:
        setting = BROKER_SETTINGS.get(name)
        if setting is None:
            raise _invalid(unknown_setting(name, BROKER_SETTINGS))
        if setting.update == READ_ONLY:
            raise _invalid(f"The setting {name} cannot be changed while the broker runs")
        if setting.update == PER_BROKER and not change.resource_name:
            raise _invalid(f"The setting {name} can be changed for single brokers only")
    per_broker = new if change.resource_name else image.config_of(ResourceType.BROKER, own)
    cluster_wide = image.config_of(ResourceType.BROKER, "") if change.resource_name else new
    try:
        config.with_dynamic(cluster_wide, per_broker)
    except ConfigError as error:
        raise _invalid("; ".join(error.errors)) from error


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
