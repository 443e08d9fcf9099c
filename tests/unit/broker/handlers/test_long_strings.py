"""No string of a request, however long, makes a response impossible.

A string has room for 32767 bytes in most versions. Compact strings have room for more, and messages
of errors repeat what a client sent: neither may end in a response, or a record, that has no form.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.handlers import SERVED
from ottla.metadata.records import ConfigRecord
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.api_table import ApiKey
from ottla.wire.apis import request_class
from ottla.wire.layout import is_flexible
from ottla.wire.message import Message
from ottla.wire.messages import alter_configs, incremental_alter_configs
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.support.broker import Broker

NAME = "leader.replication.throttled.replicas"
MOST_STRING_BYTES = 0x7FFF
LONG, LONGER = "é" * (MOST_STRING_BYTES // 2), "é" * MOST_STRING_BYTES
KNOWN: dict[str, Any] = {
    **dict.fromkeys(("name", "topic", "topic_name", "resource_name"), "t"),
    **dict.fromkeys(("group_id", "group"), "g"),
    "resource_type": 2,
    "key_type": 0,
    "session_timeout": 10_000,
    "num_partitions": 1,
    "replication_factor": 1,
    "partition_index": 0,
    "acks": 1,
}


def with_string(kind: type[Message], version: int, path: tuple[str, ...], text: str) -> Message:
    """Return a message with a text in the string at a path; arrays have one item."""
    made = kind()
    for field in kind.FIELDS:
        if not field.exists(version):
            continue
        rest = path[1:] if path and path[0] == field.name else ()
        if field.type in ("array", "struct"):
            value: Any = text if rest == () and path[:1] == (field.name,) else "t"
            if isinstance(field.of, type):
                value = with_string(field.of, version, rest, text)
            elif field.of != "string":
                value = {"uuid": bytes(16), "bool": False}.get(str(field.of), 0)
            setattr(made, field.name, [value] if field.type == "array" else value)
        elif path == (field.name,):
            setattr(made, field.name, text)
        elif field.name in KNOWN:
            setattr(made, field.name, KNOWN[field.name])
    return made


def strings_of(kind: type[Message], version: int) -> list[tuple[str, ...]]:
    """Return the paths of all strings."""
    paths: list[tuple[str, ...]] = []
    for field in kind.FIELDS:
        if not field.exists(version):
            continue
        if isinstance(field.of, type):
            paths += [(field.name, *path) for path in strings_of(field.of, version)]
        elif "string" in (field.type, field.of):
            paths.append((field.name,))
    return paths


def cases() -> list[Any]:
    return [
        pytest.param(key, version, id=f"{ApiKey(key).name} {version}")
        for key, served in sorted(SERVED.items())
        for version in range(served.oldest, served.newest + 1)
        if strings_of(request_class(key), version)
    ]


@pytest.fixture(scope="module")
def broker() -> Broker:
    made = Broker()
    made.topic("t")
    for kind in (0, 1):
        made.connect().ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=["g"]), 4)
    return made


@pytest.mark.parametrize(("key", "version"), cases())
def test_every_long_string_is_answered(broker: Broker, key: int, version: int) -> None:
    kind = request_class(key)
    text = LONGER if is_flexible(kind, version) else LONG
    for path in strings_of(kind, version):
        client = broker.connect()
        client.send(with_string(kind, version, path, text), version)
        for _ in range(100):
            broker.pass_time(1000)
            if client.connection.out:
                break
        assert client.connection.out, f"{path}: no answer"
        assert not client.connection.closing, path


@pytest.mark.parametrize("api", ["CreateTopics", "AlterConfigs", "IncrementalAlterConfigs"])
def test_a_setting_may_not_be_longer_than_in_old_versions(broker: Broker, api: str) -> None:
    value = ",".join(f"{index}:1" for index in range(6000))
    assert len(value) > MOST_STRING_BYTES
    client = broker.connect()
    if api == "CreateTopics":
        config = CreatableTopicConfig(name=NAME, value=value)
        topic = CreatableTopic(name="u", num_partitions=1, replication_factor=1, configs=[config])
        (result,) = client.ask(CreateTopicsRequest(topics=[topic]), 7).topics
    elif api == "AlterConfigs":
        old = [alter_configs.AlterableConfig(name=NAME, value=value)]
        resource = alter_configs.AlterConfigsResource(
            resource_type=2, resource_name="t", configs=old
        )
        request: Message = alter_configs.AlterConfigsRequest(resources=[resource])
        (result,) = client.ask(request, 2).responses
    else:
        new = [incremental_alter_configs.AlterableConfig(name=NAME, value=value)]
        changed = incremental_alter_configs.AlterConfigsResource(
            resource_type=2, resource_name="t", configs=new
        )
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[changed])
        (result,) = client.ask(request, 1).responses
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert "exceeds the maximum value size of 32767 bytes" in result.error_message


def test_messages_are_clipped() -> None:
    message = ApiError(ErrorCode.INVALID_REQUEST, "x" * 100_000).message
    assert message is not None
    assert message[:2] == "xx"
    assert len(message) < MOST_STRING_BYTES // 4  # a character may have four bytes


def test_a_response_without_room_for_a_value_closes_its_connection(broker: Broker) -> None:
    broker.write_metadata(
        ConfigRecord(resource_type=2, resource_name="t", name=NAME, value="1:1," * 10_000 + "1:1")
    )
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=2, resource_name="t")]
    )
    client, old_client = broker.connect(), broker.connect()
    (found,) = client.ask(request, 4).results
    assert max(len(config.value or "") for config in found.configs) == 40_003
    old_client.send(request, 3)
    broker.pass_time(1)
    assert old_client.connection.closing
    assert not old_client.connection.out
