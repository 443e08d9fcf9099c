"""Changes of dynamic settings of topics, brokers and groups (KIP-226, KIP-339, KIP-848).

AlterConfigs replaces all settings of a resource; IncrementalAlterConfigs changes some.
Both end in the same check of the settings the resource would have, so nothing is stored
that could not be used. As in Kafka a bad setting of a topic or a group is INVALID_CONFIG and
a bad broker setting INVALID_REQUEST.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.config.broker import BrokerConfig, broker_settings
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
from ottla.config.topic import TOPIC_SETTINGS, check_turned_off, log_config
from ottla.controller.decision import Decision, check_number, check_value, plain
from ottla.controller.eligible_leaders import check_broker_settings, forget_eligible_leaders
from ottla.controller.group_configs import check_group_config, check_group_name
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import ConfigRecord
from ottla.model.config_resources import ResourceType
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps, count_in_steps
from ottla.model.topic_names import check_topic_name
from ottla.wire.message import Message

SET = 0
DELETE = 1
APPEND = 2
SUBTRACT = 3
MOST_SETTINGS = 1000
"""How many settings of a resource a request may change: there are fewer."""

_VERBS = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}


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
) -> Steps[Decision[ChangedConfig]]:
    """Decide about changes of settings: one result for each change, in order."""
    times = yield from count_in_steps(
        (change.resource_type, change.resource_name) for change in changes
    )
    records: list[Message] = []
    results: list[ChangedConfig] = []
    for change in changes:
        resource = (change.resource_type, change.resource_name)
        try:
            if times[resource] > 1:
                raise _invalid("Each resource must appear at most once.")
            check_number(len(results) + 1, "resources")
            records += yield from _alter(image, config, change)
            results.append(ChangedConfig(*resource))
        except ApiError as error:
            results.append(ChangedConfig(*resource, plain(error)))
        yield
    return Decision(records, results)


def _alter(
    image: MetadataImage, config: BrokerConfig, change: ConfigChange
) -> Steps[list[Message]]:
    _check_operations(change.operations)
    settings = _settings_of(image, change, config)
    old = image.config_of(change.resource_type, change.resource_name)
    new = _apply(old, change, settings)
    if change.resource_type == ResourceType.TOPIC:
        _check_topic(image, config, change.resource_name, new)
    elif change.resource_type == ResourceType.GROUP:
        check_group_config(config, new)
    else:
        _check_broker(image, config, change, new)
        check_broker_settings(image, change.resource_name, old, new)
    changes = [
        ConfigRecord(
            resource_type=change.resource_type,
            resource_name=change.resource_name,
            name=name,
            value=new.get(name),
        )
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
    ]
    forgotten = yield from forget_eligible_leaders(image, changes)
    return [*changes, *forgotten]


def _check_operations(operations: Sequence[ConfigOperation]) -> None:
    if len(operations) > MOST_SETTINGS:
        raise _invalid(f"A resource has at most {MOST_SETTINGS} settings in a request.")
    times = Counter(operation.name for operation in operations)
    for name, operation, value in operations:
        if times[name] > 1:
            raise _invalid("Error due to duplicate config keys")
        if operation not in (SET, DELETE, APPEND, SUBTRACT):
            raise _invalid(f"The setting {name} has the unknown operation {operation}")
        if value is None and operation != DELETE:
            raise _invalid(f"Null value not supported for : {name}")


def _settings_of(
    image: MetadataImage, change: ConfigChange, config: BrokerConfig
) -> Mapping[str, Setting]:
    """Return the settings that this kind of resource has; ApiError for a wrong resource."""
    kind, name = change.resource_type, change.resource_name
    if kind == ResourceType.TOPIC:
        if not name:
            raise _invalid("Default topic resources are not allowed.")
        check_topic_name(name)
        return TOPIC_SETTINGS
    if kind == ResourceType.BROKER:
        _check_broker_name(image, name, config)
        return broker_settings()
    if kind == ResourceType.GROUP:
        check_group_name(name)
        return GROUP_SETTINGS
    raise unsupported_resource(kind)


def _check_broker_name(image: MetadataImage, name: str, config: BrokerConfig) -> None:
    """Raise ApiError unless the resource is a node of the cluster or "" for all brokers."""
    if not name or name == str(config.node.node_id):
        return
    if not name.lstrip("-").isdecimal():
        raise _invalid(f"Node id must be an integer, but it is: {name}")
    if config.is_alone:
        raise _invalid(f"Unexpected broker id, expected {config.node.node_id}, but received {name}")
    if int(name) not in image.brokers and int(name) not in image.controllers:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {name} found.")


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
            continue
        if operation == SET:
            new[name] = value
        else:
            new[name] = _edit_list(settings, name, operation, new.get(name), value)
        check_value(new[name])
    return new


def _edit_list(
    settings: Mapping[str, Setting], name: str, operation: int, old: str | None, value: str
) -> str:
    setting = settings.get(name)
    if setting is None or setting.type != "list":
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {_VERBS[operation]} to key {name} because its type is not LIST.",
        )
    parts = list(split_list(format_value(setting.default) or "" if old is None else old))
    words = split_list(value)
    if operation == APPEND:
        have = set(parts)
        parts.extend(word for word in dict.fromkeys(words) if word not in have)
    else:
        unwanted = set(words)
        parts = [part for part in parts if part not in unwanted]
    return ",".join(parts)


def _check_topic(
    image: MetadataImage, config: BrokerConfig, name: str, new: Mapping[str, str]
) -> None:
    try:
        check_turned_off(image.topic_config(name), log_config(config, new))
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, "; ".join(error.errors)) from error
    if name not in image.topics:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _check_broker(
    image: MetadataImage, config: BrokerConfig, change: ConfigChange, new: Mapping[str, str]
) -> None:
    own = str(config.node.node_id)
    settings = broker_settings()
    for name in new:
        if name not in settings:
            raise _invalid(unknown_setting(name, settings))
    fixed = [name for name in new if settings[name].update == READ_ONLY]
    if fixed:
        raise _invalid(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    single = [name for name in new if settings[name].update == PER_BROKER]
    if single and not change.resource_name:
        raise _invalid(
            "Cannot update these configs at default cluster level, broker id must be specified:"
            f" [{', '.join(single)}]"
        )
    per_broker = new if change.resource_name else image.config_of(ResourceType.BROKER, own)
    cluster_wide = image.config_of(ResourceType.BROKER, "") if change.resource_name else new
    try:
        if not change.resource_name:
            config.with_dynamic(new, {})  # other brokers have no settings of their own for it
        config.with_dynamic(cluster_wide, per_broker)
    except ConfigError as error:
        raise _invalid("; ".join(error.errors)) from error


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
