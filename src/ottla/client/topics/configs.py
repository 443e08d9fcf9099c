"""Topic configuration: read and change the settings that a topic overrides.

Brokers since Kafka 2.3 change single settings (IncrementalAlterConfigs, KIP-339). For older
brokers, the client reads all settings, changes them and writes them back. This can lose a
change that another client makes at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.client.cluster import Client
from ottla.client.deadline import Deadline
from ottla.client.errors import ProtocolViolation, check
from ottla.wire.messages import alter_configs as whole
from ottla.wire.messages import incremental_alter_configs as incremental
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

TOPIC_RESOURCE = 2
DYNAMIC_TOPIC_CONFIG = 1
SET = 0
DELETE = 1


class ConfigChange(NamedTuple):
    """Settings to set, and settings to reset to the broker's defaults."""

    to_set: Mapping[str, str]
    to_delete: Sequence[str]


def describe_overrides(
    client: Client, topics: Sequence[str], deadline: Deadline
) -> dict[str, dict[str, str]]:
    """Return the settings that each topic overrides, by topic."""
    resources = [
        DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None
        )
        for topic in topics
    ]
    request = DescribeConfigsRequest(resources=resources)
    response = client.call(client.any(deadline), request, DescribeConfigsResponse, deadline)
    overrides = {}
    for result in response.results:
        check(
            result.error_code, f"the configuration of {result.resource_name}", result.error_message
        )
        overrides[result.resource_name] = {
            config.name: config.value or ""
            for config in result.configs
            if config.config_source == DYNAMIC_TOPIC_CONFIG
        }
    if missing := set(topics) - overrides.keys():
        raise ProtocolViolation(f"the broker did not return the configuration of {missing.pop()}")
    return overrides


def alter_overrides(client: Client, topic: str, change: ConfigChange, deadline: Deadline) -> None:
    """Change the settings that a topic overrides."""
    connection = client.any(deadline)
    if connection.supports(incremental.IncrementalAlterConfigsRequest):
        _alter_incrementally(client, topic, change, deadline)
    else:
        _alter_whole(client, topic, change, deadline)


def _alter_incrementally(
    client: Client, topic: str, change: ConfigChange, deadline: Deadline
) -> None:
    configs = [
        incremental.AlterableConfig(name=name, config_operation=SET, value=value)
        for name, value in change.to_set.items()
    ]
    configs += [
        incremental.AlterableConfig(name=name, config_operation=DELETE, value=None)
        for name in change.to_delete
    ]
    resource = incremental.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configs=configs
    )
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
    answer = client.call(
        client.any(deadline), request, incremental.IncrementalAlterConfigsResponse, deadline
    )
    for result in answer.responses:
        check(result.error_code, f"topic {topic}", result.error_message)


def _alter_whole(client: Client, topic: str, change: ConfigChange, deadline: Deadline) -> None:
    wanted = describe_overrides(client, [topic], deadline)[topic] | dict(change.to_set)
    configs = [
        whole.AlterableConfig(name=name, value=value)
        for name, value in wanted.items()
        if name not in change.to_delete
    ]
    resource = whole.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configs=configs
    )
    request = whole.AlterConfigsRequest(resources=[resource])
    answer = client.call(client.any(deadline), request, whole.AlterConfigsResponse, deadline)
    for result in answer.responses:
        check(result.error_code, f"topic {topic}", result.error_message)
