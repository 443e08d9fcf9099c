from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.config.describe import describe_broker
from ottla.memory_files import MemoryFiles
from ottla.model.errors import ErrorCode
from ottla.wire.messages import alter_configs, incremental_alter_configs
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)

TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND = 0, 1, 2
Ask = Callable[..., object]


def create(ask: Ask, name: str = "a", **configs: str) -> None:
    settings = [
        CreatableTopicConfig(name=each.replace("_", "."), value=value)
        for each, value in configs.items()
    ]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=settings)
    ask(CreateTopicsRequest(topics=[topic]))


def describe(
    ask: Ask, kind: int, name: str, *keys: str, version: int = 4, docs: bool = False
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
            )
        ],
        include_synonyms=True,
        include_documentation=docs,
    )
    (result,) = ask(request, version).results  # type: ignore[attr-defined]
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result  # type: ignore[no-any-return]


def entry(ask: Ask, kind: int, name: str, key: str) -> DescribeConfigsResourceResult:
    (found,) = describe(ask, kind, name, key).configs
    return found


def origins(found: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.source) for each in found.synonyms]


def incremental(
    ask: Ask,
    kind: int,
    name: str,
    *operations: tuple[str, int, str | None],
    validate_only: bool = False,
) -> tuple[int, str | None]:
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    incremental_alter_configs.AlterableConfig(
                        name=each, config_operation=operation, value=value
                    )
                    for each, operation, value in operations
                ],
            )
        ],
        validate_only=validate_only,
    )
    (result,) = ask(request).responses  # type: ignore[attr-defined]
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result.error_code, result.error_message


def full(ask: Ask, kind: int, name: str, **configs: str) -> tuple[int, str | None]:
    request = alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    alter_configs.AlterableConfig(name=each.replace("_", "."), value=value)
                    for each, value in configs.items()
                ],
            )
        ]
    )
    (result,) = ask(request).responses  # type: ignore[attr-defined]
    return result.error_code, result.error_message


def test_a_topics_own_setting(ask: Ask) -> None:
    create(ask, max_message_bytes="5000")
    found = entry(ask, TOPIC, "a", "max.message.bytes")
    assert (found.value, found.config_source, found.config_type) == ("5000", 1, 3)
    assert not found.read_only
    assert not found.is_sensitive
    assert origins(found) == [
        ("max.message.bytes", "5000", 1),
        ("message.max.bytes", "1048588", 5),
    ]


def test_a_default_of_a_topic(ask: Ask) -> None:
    create(ask)
    found = entry(ask, TOPIC, "a", "cleanup.policy")
    assert (found.value, found.config_source, found.config_type) == ("delete", 5, 7)
    assert origins(found) == [("log.cleanup.policy", "delete", 5)]
    assert origins(entry(ask, TOPIC, "a", "retention.ms")) == []
    assert origins(entry(ask, TOPIC, "a", "remote.storage.enable")) == []


def test_the_file_gives_a_topic_its_setting(
    start_node: Callable[..., Node], connect: Callable[..., object]
) -> None:
    node = start_node(log_retention_hours="2", log_segment_bytes="2000000")
    ask: Ask = connect(node).ask  # type: ignore[attr-defined]
    create(ask)
    hours = entry(ask, TOPIC, "a", "retention.ms")
    assert (hours.value, hours.config_source) == ("7200000", 4)
    assert origins(hours) == [("log.retention.hours", "2", 4), ("log.retention.hours", "168", 5)]
    size = entry(ask, TOPIC, "a", "segment.bytes")
    assert origins(size) == [
        ("log.segment.bytes", "2000000", 4),
        ("log.segment.bytes", "1073741824", 5),
    ]


def test_all_levels_in_the_order_in_which_they_count(
    start_node: Callable[..., Node], connect: Callable[..., object]
) -> None:
    ask: Ask = connect(start_node(log_retention_ms="1000")).ask  # type: ignore[attr-defined]
    create(ask, retention_ms="4000")
    assert incremental(ask, BROKER, "", ("log.retention.ms", SET, "2000")) == (0, None)
    assert incremental(ask, BROKER, "1", ("log.retention.ms", SET, "3000")) == (0, None)
    assert origins(entry(ask, TOPIC, "a", "retention.ms")) == [
        ("retention.ms", "4000", 1),
        ("log.retention.ms", "3000", 2),
        ("log.retention.ms", "2000", 3),
        ("log.retention.ms", "1000", 4),
        ("log.retention.hours", "168", 5),
    ]
    broker = entry(ask, BROKER, "1", "log.retention.ms")
    assert (broker.value, broker.config_source, broker.read_only) == ("3000", 2, False)
    assert origins(broker) == [
        ("log.retention.ms", "3000", 2),
        ("log.retention.ms", "2000", 3),
        ("log.retention.ms", "1000", 4),
        ("log.retention.hours", "168", 5),
    ]
    cluster, minimum = describe(ask, BROKER, "").configs
    assert (minimum.name, minimum.value) == ("min.insync.replicas", "1")  # of a new cluster
    assert (cluster.name, cluster.value, cluster.config_source) == ("log.retention.ms", "2000", 3)
    assert origins(cluster) == [("log.retention.ms", "2000", 3)]


def test_a_broker_is_described_in_full(ask: Ask) -> None:
    found = {each.name: each for each in describe(ask, BROKER, "1", docs=True).configs}
    assert found["log.dirs"].config_source == 4
    assert found["log.dirs"].read_only
    assert not found["max.connections"].read_only
    assert found["node.id"].value == "1"
    assert found["log.retention.ms"].value is None
    assert found["offsets.topic.num.partitions"].value == "50"
    assert all(each.documentation for each in found.values())
    assert "internal.segment.bytes" not in found


def test_what_kafka_does_not_have_is_described_only_where_it_was_set() -> None:
    unset = {entry.setting.name for entry in describe_broker(BrokerConfig())}
    assert not unset & {"zookeeper.connect", "cluster.id", "leader.replication.throttled.rate"}
    config = BrokerConfig({"zookeeper.connect": "z:1"}, {"leader.replication.throttled.rate": "9"})
    found = {entry.setting.name: entry.value for entry in describe_broker(config)}
    assert found["zookeeper.connect"] == "z:1"
    assert found["leader.replication.throttled.rate"] == "9"


def test_documentation_and_synonyms_only_when_asked(ask: Ask) -> None:
    create(ask)
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=TOPIC, resource_name="a", configuration_keys=["segment.ms"]
            )
        ]
    )
    (found,) = ask(request).results[0].configs  # type: ignore[attr-defined]
    assert (found.documentation, found.synonyms) == (None, [])


@pytest.mark.parametrize("version", range(1, 5))
def test_every_version_describes(ask: Ask, version: int) -> None:
    create(ask)
    result = describe(ask, TOPIC, "a", "segment.ms", "no.such", version=version)
    assert result.error_code == 0
    assert [(each.name, each.value) for each in result.configs] == [("segment.ms", "604800000")]


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_described_says_why(ask: Ask, kind: int, name: str, code: ErrorCode) -> None:
    result = describe(ask, kind, name)
    assert result.error_code == code
    assert result.error_message
    assert result.configs == []


def test_changes_of_a_topic_reach_its_logs(ask: Ask, node: Node) -> None:
    create(ask)
    log = node.topics.partition_named("a", 0).online_log()
    assert incremental(ask, TOPIC, "a", ("max.message.bytes", SET, "70")) == (0, None)
    assert log.config.max_message_bytes == 70
    assert incremental(ask, TOPIC, "a", ("cleanup.policy", APPEND, "compact")) == (0, None)
    assert log.config.cleanup_policy == {"compact", "delete"}
    assert full(ask, TOPIC, "a", retention_ms="5") == (0, None)
    assert (log.config.retention_ms, log.config.max_message_bytes) == (5, 1048588)
    assert log.config.cleanup_policy == {"delete"}


def test_changes_of_a_broker_reach_topics_without_their_own(ask: Ask, node: Node) -> None:
    create(ask, "own", max_message_bytes="5000")
    create(ask, "other")
    assert incremental(ask, BROKER, "", ("message.max.bytes", SET, "6000")) == (0, None)
    limits = {
        name: node.topics.partition_named(name, 0).online_log().config.max_message_bytes
        for name in ("own", "other")
    }
    assert limits == {"own": 5000, "other": 6000}
    assert full(ask, BROKER, "1", max_connections="9") == (0, None)
    assert node.config.network.max_connections == 9
    assert full(ask, BROKER, "1") == (0, None)
    assert node.config.network.max_connections == 2**31 - 1


def test_a_cleanup_policy_of_the_broker_is_described(ask: Ask) -> None:
    create(ask)
    incremental(ask, BROKER, "", ("log.cleanup.policy", SET, "compact, delete"))
    assert entry(ask, TOPIC, "a", "cleanup.policy").value == "compact,delete"


def test_changes_survive_a_restart(
    start_node: Callable[..., Node], connect: Callable[..., object]
) -> None:
    files = MemoryFiles()
    node = start_node(files)
    ask: Ask = connect(node).ask  # type: ignore[attr-defined]
    create(ask)
    incremental(ask, BROKER, "", ("message.max.bytes", SET, "6000"))
    incremental(ask, TOPIC, "a", ("retention.ms", SET, "7"))
    node.shutdown()
    again = start_node(files)
    config = again.topics.partition_named("a", 0).online_log().config
    assert (config.max_message_bytes, config.retention_ms) == (6000, 7)


def test_validation_alone_changes_nothing(ask: Ask, node: Node) -> None:
    create(ask)
    assert incremental(ask, TOPIC, "a", ("retention.ms", SET, "5"), validate_only=True) == (0, None)
    code, message = incremental(ask, TOPIC, "a", ("retention.ms", SET, "x"), validate_only=True)
    assert code == ErrorCode.INVALID_CONFIG
    assert message is not None
    assert "Invalid value x for configuration retention.ms" in message
    assert node.image.topic_config("a") == {}


@pytest.mark.parametrize("version", range(3))
def test_full_changes_in_every_version(ask: Ask, node: Node, version: int) -> None:
    create(ask)
    request = alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=TOPIC,
                resource_name="a",
                configs=[alter_configs.AlterableConfig(name="segment.ms", value="5")],
            ),
            alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name="x"),
            alter_configs.AlterConfigsResource(resource_type=BROKER_LOGGER, resource_name="1"),
        ]
    )
    responses = ask(request, version).responses  # type: ignore[attr-defined]
    assert [each.error_code for each in responses] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    ]
    assert node.image.topic_config("a") == {"segment.ms": "5"}


def test_a_group_setting_names_the_broker_setting_of_its_default(
    start_node: Callable[..., Node], connect: Callable[..., object]
) -> None:
    node = start_node(group_consumer_session_timeout_ms="50000")
    ask: Ask = connect(node).ask  # type: ignore[attr-defined]
    found = entry(ask, GROUP, "g", "consumer.session.timeout.ms")
    assert (found.value, found.config_source) == ("50000", 4)
    assert origins(found) == [
        ("group.consumer.session.timeout.ms", "50000", 4),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]
    assert incremental(ask, GROUP, "g", ("consumer.session.timeout.ms", SET, "55000")) == (0, None)
    found = entry(ask, GROUP, "g", "consumer.session.timeout.ms")
    assert origins(found)[0] == ("consumer.session.timeout.ms", "55000", 8)
