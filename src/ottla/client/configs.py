"""Configuration of topics, brokers and groups: read and change settings.

Brokers since Kafka 2.3 change single settings (IncrementalAlterConfigs, KIP-339). For older
brokers, the client reads all settings, changes them and writes them back. This can lose a
change that another client makes at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.client.cluster import Client
from ottla.client.connection import Connection
from ottla.client.deadline import Deadline
from ottla.client.errors import ProtocolViolation, check
from ottla.wire.messages import alter_configs as whole
from ottla.wire.messages import incremental_alter_configs as incremental
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

SET = 0
DELETE = 1


class ResourceType(IntEnum):
    """What a setting belongs to."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class Source(IntEnum):
    """Where a value comes from, as Kafka counts them."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


OWN_SOURCES = frozenset(
    {Source.DYNAMIC_TOPIC_CONFIG, Source.DYNAMIC_BROKER_CONFIG, Source.GROUP_CONFIG}
)
"""The sources of values that were set on the resource itself and can be deleted there."""


class Resource(NamedTuple):
    """A topic, broker or group. The name "" means the default of all brokers."""

    kind: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.kind.name.lower()} {self.name}" if self.name else "the default of brokers"


class Setting(NamedTuple):
    """A setting of a resource. The value of a sensitive setting is None."""

    name: str
    value: str | None
    source: Source
    is_read_only: bool
    is_sensitive: bool
    default: str | None = None
    """The value that it has if nobody sets it; None if that is not known."""

    @property
    def is_own(self) -> bool:
        """True if the value was set on the resource itself."""
        return self.source in OWN_SOURCES


class ConfigChange(NamedTuple):
    """Settings to set, and settings to reset to their defaults."""

    to_set: Mapping[str, str]
    to_delete: Sequence[str]

    @property
    def both(self) -> list[str]:
        """The settings that are to be set and deleted, which makes no sense."""
        return [name for name in self.to_delete if name in self.to_set]


def describe_configs(
    client: Client, resources: Sequence[Resource], deadline: Deadline
) -> dict[Resource, list[Setting]]:
    """Return all settings of resources, by name. Raise Refused if one does not exist."""
    found: dict[Resource, list[Setting]] = {}
    for connection, asked in _by_connection(client, resources, deadline):
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=resource.kind,
                    resource_name=resource.name,
                    configuration_keys=None,
                )
                for resource in asked
            ],
            include_synonyms=True,
        )
        response = client.call(connection, request, DescribeConfigsResponse, deadline)
        results = {each.resource_name: each for each in response.results}
        for resource in asked:
            if (result := results.get(resource.name)) is not None:
                check(result.error_code, str(resource), result.error_message)
                found[resource] = _settings(result)
    if missing := set(resources) - found.keys():
        raise ProtocolViolation(f"the broker did not return the configuration of {missing.pop()}")
    return found


def alter_configs(
    client: Client, resource: Resource, change: ConfigChange, deadline: Deadline
) -> None:
    """Change settings of a resource: all of them or, if the broker refuses one, none."""
    ((connection, _),) = _by_connection(client, [resource], deadline)
    if connection.supports(incremental.IncrementalAlterConfigsRequest):
        _alter_incrementally(client, connection, resource, change, deadline)
    else:
        _alter_whole(client, connection, resource, change, deadline)


def _by_connection(
    client: Client, resources: Sequence[Resource], deadline: Deadline
) -> list[tuple[Connection, list[Resource]]]:
    """Return which resources to ask which broker for: only a broker itself knows its settings."""
    brokers = [r for r in resources if r.kind == ResourceType.BROKER and r.name]
    others = [r for r in resources if r not in brokers]
    asked = [(client.node(int(r.name), deadline), [r]) for r in brokers]
    return [*asked, *([(client.any(deadline), others)] if others else [])]


def _settings(result: DescribeConfigsResult) -> list[Setting]:
    settings = [
        Setting(
            config.name,
            config.value,
            _source(config),
            config.read_only,
            config.is_sensitive,
            _default(config),
        )
        for config in result.configs
    ]
    return sorted(settings, key=lambda setting: setting.name)


def _default(config: DescribeConfigsResourceResult) -> str | None:
    found = (each.value for each in config.synonyms if each.source == Source.DEFAULT_CONFIG)
    return next(found, None)


def _source(config: DescribeConfigsResourceResult) -> Source:
    try:
        return Source(config.config_source)
    except ValueError:
        return Source.UNKNOWN


def _alter_incrementally(
    client: Client,
    connection: Connection,
    resource: Resource,
    change: ConfigChange,
    deadline: Deadline,
) -> None:
    configs = [
        incremental.AlterableConfig(name=name, config_operation=SET, value=value)
        for name, value in change.to_set.items()
    ]
    configs += [
        incremental.AlterableConfig(name=name, config_operation=DELETE, value=None)
        for name in change.to_delete
    ]
    changed = incremental.AlterConfigsResource(
        resource_type=resource.kind, resource_name=resource.name, configs=configs
    )
    request = incremental.IncrementalAlterConfigsRequest(resources=[changed])
    answer = client.call(connection, request, incremental.IncrementalAlterConfigsResponse, deadline)
    for result in answer.responses:
        check(result.error_code, str(resource), result.error_message)


def _alter_whole(
    client: Client,
    connection: Connection,
    resource: Resource,
    change: ConfigChange,
    deadline: Deadline,
) -> None:
    settings = describe_configs(client, [resource], deadline)[resource]
    wanted = {each.name: each.value or "" for each in settings if each.is_own}
    configs = [
        whole.AlterableConfig(name=name, value=value)
        for name, value in (wanted | dict(change.to_set)).items()
        if name not in change.to_delete
    ]
    changed = whole.AlterConfigsResource(
        resource_type=resource.kind, resource_name=resource.name, configs=configs
    )
    request = whole.AlterConfigsRequest(resources=[changed])
    answer = client.call(connection, request, whole.AlterConfigsResponse, deadline)
    for result in answer.responses:
        check(result.error_code, str(resource), result.error_message)
