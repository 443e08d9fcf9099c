"""Topic and broker configuration: sources, synonyms, full and incremental changes, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.batches import batch_of
from tests.harness.deadline import eventually
from tests.harness.model import AdminError, Client
from tests.harness.raw import RawConnection
from tests.harness.topics import produce

UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_CONFIG = 40
INVALID_REQUEST = 42
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
DYNAMIC_TOPIC, STATIC_BROKER, DEFAULT = 1, 4, 5


def describe(raw: RawConnection, resource: str, *names: str, kind: int = TOPIC) -> Any:
    (result,) = raw.request(
        "describe_configs",
        4,
        include_synonyms=True,
        include_documentation=True,
        resources=[
            {
                "resource_type": kind,
                "resource_name": resource,
                "configuration_keys": list(names) or None,
            }
        ],
    ).results
    return result


def entry(raw: RawConnection, topic: str, name: str) -> Any:
    (found,) = describe(raw, topic, name).configs
    return found


def value_of(raw: RawConnection, topic: str, name: str) -> str:
    value: str = entry(raw, topic, name).value
    return value


def incremental(
    raw: RawConnection,
    topic: str,
    *operations: tuple[str, int, str | None],
    validate_only: bool = False,
) -> Any:
    (result,) = raw.request(
        "incremental_alter_configs",
        1,
        validate_only=validate_only,
        resources=[
            {
                "resource_type": TOPIC,
                "resource_name": topic,
                "configs": [
                    {"name": name, "config_operation": operation, "value": value}
                    for name, operation, value in operations
                ],
            }
        ],
    ).responses
    return result


def full(
    raw: RawConnection, topic: str, configs: dict[str, str], *, validate_only: bool = False
) -> Any:
    (result,) = raw.request(
        "alter_configs",
        2,
        validate_only=validate_only,
        resources=[
            {
                "resource_type": TOPIC,
                "resource_name": topic,
                "configs": [{"name": name, "value": value} for name, value in configs.items()],
            }
        ],
    ).responses
    return result


def becomes(raw: RawConnection, topic: str, name: str, value: str) -> None:
    eventually(lambda: value_of(raw, topic, name) == value, f"{name} is {value}")


def test_clients_change_a_topic(
    client: Client, topic: str, bootstrap_servers: str, raw: RawConnection
) -> None:
    with client.admin(bootstrap_servers) as admin:
        admin.set_topic_configs(topic, {"retention.ms": "777000", "segment.bytes": "2000000"})
        becomes(raw, topic, "retention.ms", "777000")
        configs = admin.topic_configs(topic)
        assert (configs["retention.ms"], configs["segment.bytes"]) == ("777000", "2000000")
        with pytest.raises(AdminError) as caught:
            admin.set_topic_configs(topic, {"retention.ms": "a while"})
        assert caught.value.code == INVALID_CONFIG


def test_sources_and_synonyms(raw: RawConnection, make_topic: Callable[..., str]) -> None:
    topic = make_topic(configs={"max.message.bytes": "50000", "retention.ms": "5000"})
    found = entry(raw, topic, "max.message.bytes")
    assert (found.value, found.config_source) == ("50000", DYNAMIC_TOPIC)
    assert not found.read_only
    assert not found.is_sensitive
    assert found.documentation
    assert synonyms(found) == [
        ("max.message.bytes", "50000", DYNAMIC_TOPIC),
        ("message.max.bytes", "1048588", DEFAULT),
    ]
    assert synonyms(entry(raw, topic, "retention.ms")) == [("retention.ms", "5000", DYNAMIC_TOPIC)]

    found = entry(raw, topic, "segment.bytes")
    assert (found.value, found.config_source) == ("1073741824", DEFAULT)
    assert synonyms(found) == [("log.segment.bytes", "1073741824", DEFAULT)]


def synonyms(found: Any) -> list[tuple[str, str, int]]:
    return [(each.name, each.value, each.source) for each in found.synonyms]


def test_all_topic_settings_are_described(raw: RawConnection, topic: str) -> None:
    found = {each.name: each.value for each in describe(raw, topic).configs}
    expected = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "delete.retention.ms": "86400000",
        "file.delete.delay.ms": "60000",
        "flush.messages": "9223372036854775807",
        "flush.ms": "9223372036854775807",
        "index.interval.bytes": "4096",
        "max.compaction.lag.ms": "9223372036854775807",
        "max.message.bytes": "1048588",
        "message.timestamp.after.max.ms": "3600000",
        "message.timestamp.before.max.ms": "9223372036854775807",
        "message.timestamp.type": "CreateTime",
        "min.cleanable.dirty.ratio": "0.5",
        "min.compaction.lag.ms": "0",
        "min.insync.replicas": "1",
        "preallocate": "false",
        "retention.bytes": "-1",
        "retention.ms": "604800000",
        "segment.bytes": "1073741824",
        "segment.index.bytes": "10485760",
        "segment.jitter.ms": "0",
        "segment.ms": "604800000",
        "unclean.leader.election.enable": "false",
    }
    assert {name: found.get(name) for name in expected} == expected


def test_only_the_settings_asked_for(raw: RawConnection, topic: str) -> None:
    found = describe(raw, topic, "retention.ms", "segment.ms", "no.such.setting")
    assert {each.name for each in found.configs} == {"retention.ms", "segment.ms"}


def test_incremental_set_and_delete(raw: RawConnection, topic: str) -> None:
    assert (
        incremental(
            raw, topic, ("retention.ms", SET, "1000"), ("segment.ms", SET, "99999")
        ).error_code
        == 0
    )
    becomes(raw, topic, "retention.ms", "1000")
    assert incremental(raw, topic, ("retention.ms", DELETE, None)).error_code == 0
    becomes(raw, topic, "retention.ms", "604800000")
    assert value_of(raw, topic, "segment.ms") == "99999", "what is not named stays"


def test_incremental_append_and_subtract(raw: RawConnection, topic: str) -> None:
    assert incremental(raw, topic, ("cleanup.policy", APPEND, "compact")).error_code == 0
    eventually(
        lambda: sorted(value_of(raw, topic, "cleanup.policy").split(",")) == ["compact", "delete"],
        "both policies",
    )
    assert incremental(raw, topic, ("cleanup.policy", SUBTRACT, "delete")).error_code == 0
    becomes(raw, topic, "cleanup.policy", "compact")
    refused = incremental(raw, topic, ("retention.ms", APPEND, "1"))
    assert refused.error_code == INVALID_CONFIG


def test_incremental_refusals_change_nothing(raw: RawConnection, topic: str) -> None:
    for operation in (
        ("retention.ms", SET, "soon"),
        ("no.such.setting", SET, "1"),
        ("retention.ms", SET, "-2"),
    ):
        refused = incremental(raw, topic, ("segment.ms", SET, "99999"), operation)
        assert refused.error_code == INVALID_CONFIG
        assert refused.error_message
    twice = incremental(raw, topic, ("segment.ms", SET, "1"), ("segment.ms", SET, "2"))
    assert twice.error_code == INVALID_REQUEST
    assert value_of(raw, topic, "segment.ms") == "604800000"


def test_a_full_change_resets_what_it_does_not_name(raw: RawConnection, topic: str) -> None:
    assert full(raw, topic, {"retention.ms": "1000", "segment.ms": "99999"}).error_code == 0
    becomes(raw, topic, "segment.ms", "99999")
    assert full(raw, topic, {"retention.ms": "2000"}).error_code == 0
    becomes(raw, topic, "retention.ms", "2000")
    assert value_of(raw, topic, "segment.ms") == "604800000"
    assert full(raw, topic, {"retention.ms": "never"}).error_code == INVALID_CONFIG


def test_validate_only_changes_nothing(raw: RawConnection, topic: str) -> None:
    assert full(raw, topic, {"retention.ms": "1000"}, validate_only=True).error_code == 0
    assert (
        incremental(raw, topic, ("retention.ms", SET, "1000"), validate_only=True).error_code == 0
    )
    assert (
        incremental(raw, topic, ("retention.ms", SET, "soon"), validate_only=True).error_code
        == INVALID_CONFIG
    )
    assert value_of(raw, topic, "retention.ms") == "604800000"


def test_a_change_takes_effect_at_once(raw: RawConnection, topic: str) -> None:
    large = batch_of([b"x" * 5_000])
    assert produce(raw, topic, large).error_code == 0
    incremental(raw, topic, ("max.message.bytes", SET, "1000"))
    eventually(
        lambda: produce(raw, topic, large).error_code == MESSAGE_TOO_LARGE, "the new limit holds"
    )
    incremental(raw, topic, ("max.message.bytes", DELETE, None))
    eventually(lambda: produce(raw, topic, large).error_code == 0, "the default is back")


def test_unknown_topics_are_refused(raw: RawConnection, unused_name: str) -> None:
    assert describe(raw, unused_name).error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert (
        incremental(raw, unused_name, ("retention.ms", SET, "1")).error_code
        == UNKNOWN_TOPIC_OR_PARTITION
    )
    assert full(raw, unused_name, {"retention.ms": "1"}).error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_broker_settings(raw: RawConnection) -> None:
    (broker,) = raw.request("metadata", 12, topics=[]).brokers
    found = {each.name: each for each in describe(raw, str(broker.node_id), kind=BROKER).configs}
    assert found["num.partitions"].value == "1"
    assert found["log.retention.hours"].value == "168"
    assert found["auto.create.topics.enable"].value == "true"
    assert found["listeners"].config_source == STATIC_BROKER
    assert found["log.dirs"].read_only
    assert not found["log.retention.ms"].read_only


def test_a_brokers_default_is_changed_for_topics_without_their_own(
    raw: RawConnection, topic: str
) -> None:
    (broker,) = raw.request("metadata", 12, topics=[]).brokers

    def alter(name: str, operation: int, value: str | None) -> int:
        (result,) = raw.request(
            "incremental_alter_configs",
            1,
            resources=[
                {
                    "resource_type": BROKER,
                    "resource_name": str(broker.node_id),
                    "configs": [{"name": name, "config_operation": operation, "value": value}],
                }
            ],
        ).responses
        return int(result.error_code)

    assert alter("message.max.bytes", SET, "2000000") == 0
    try:
        becomes(raw, topic, "max.message.bytes", "2000000")
    finally:
        assert alter("message.max.bytes", DELETE, None) == 0
    becomes(raw, topic, "max.message.bytes", "1048588")
    assert alter("log.dirs", SET, "/elsewhere") in (INVALID_REQUEST, INVALID_CONFIG)
