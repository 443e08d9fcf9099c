from __future__ import annotations

import re
import subprocess
import sys

import pytest

from ottla.config.broker import COMPONENTS, BrokerConfig, broker_settings
from ottla.config.definition import ConfigError, format_value
from ottla.config.describe import Source, describe_broker
from ottla.config.listeners import Endpoint
from ottla.config.properties import parse_properties

# What Kafka's own files set, for KRaft and for ZooKeeper.
KRAFT_FILE = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\\
    SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
ZOOKEEPER_FILE = """
broker.id=0
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kafka-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""


def config(**settings: str) -> BrokerConfig:
    return BrokerConfig({name.replace("_", "."): text for name, text in settings.items()})


def errors_of(properties: dict[str, str]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_properties(properties)
    return caught.value.errors


def test_kafkas_kraft_file_is_accepted() -> None:
    config = BrokerConfig.from_properties(parse_properties(KRAFT_FILE))
    assert config.node.node_id == 1
    assert config.network.listeners == (Endpoint("PLAINTEXT", "", 9092),)
    assert config.network.advertised_listeners == (Endpoint("PLAINTEXT", "localhost", 9092),)
    assert config.network.inter_broker_listener_name == "PLAINTEXT"
    assert config.storage.log_dirs == ("/tmp/kraft-combined-logs",)


def test_kafkas_zookeeper_file_is_accepted() -> None:
    config = BrokerConfig.from_properties(parse_properties(ZOOKEEPER_FILE))
    assert config.node.node_id == 0
    assert config.storage.log_dirs == ("/tmp/kafka-logs",)


def test_the_defaults() -> None:
    config = BrokerConfig()
    assert config.node.node_id == 1
    assert config.network.listeners == (Endpoint("PLAINTEXT", "", 9092),)
    assert config.network.advertised_listeners == config.network.listeners
    assert config.topics.num_partitions == 1
    assert config.topics.auto_create_topics_enable is True
    assert config.storage.log_dirs == ("/tmp/kafka-logs",)
    assert config.network.max_connections_per_ip_overrides == {}


def test_every_default_is_valid_and_every_setting_is_documented() -> None:
    for name, setting in broker_settings().items():
        assert setting.name == name
        assert setting.doc.endswith("."), name
        text = format_value(setting.default)
        if text is not None:
            assert setting.parse(text) == setting.default, name


def test_every_annotated_attribute_is_there() -> None:
    config = BrokerConfig()
    for attribute in BrokerConfig.__annotations__:
        assert hasattr(config, attribute), attribute
    for part, component in COMPONENTS.items():
        assert type(getattr(config, part)) is component
        for attribute in component.__annotations__:
            assert hasattr(getattr(config, part), attribute), attribute


def test_several_listeners_with_names_and_addresses() -> None:
    config = BrokerConfig(
        {
            "listeners": "INSIDE://127.0.0.1:9092, OUTSIDE://[::1]:9092 ,ANY://:0",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,ANY:PLAINTEXT",
            "advertised.listeners": "OUTSIDE://broker.example:19092,INSIDE://127.0.0.1:9092",
            "inter.broker.listener.name": "inside",
        }
    )
    assert config.network.listeners == (
        Endpoint("INSIDE", "127.0.0.1", 9092),
        Endpoint("OUTSIDE", "::1", 9092),
        Endpoint("ANY", "", 0),
    )
    assert config.network.advertised_listeners[0] == Endpoint("OUTSIDE", "broker.example", 19092)
    assert config.network.inter_broker_listener_name == "INSIDE"
    assert str(config.network.listeners[1]) == "OUTSIDE://[::1]:9092"


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"listeners": "127.0.0.1:9092"}, "Invalid address '127.0.0.1:9092' in listeners: write"),
        ({"listeners": "PLAINTEXT://host"}, "Invalid address"),
        ({"listeners": "PLAINTEXT://::1:9092"}, "an IPv6 address stands in brackets"),
        ({"listeners": "PLAINTEXT://:70000"}, "between 0 and 65535"),
        ({"listeners": "FOO://:1"}, "add FOO:PLAINTEXT to listener.security.protocol.map"),
        ({"listeners": "SSL://:9092"}, "security protocol SSL: this broker has PLAINTEXT only"),
        ({"listeners": ""}, "names no listener"),
        (
            {"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"},
            "the listener name PLAINTEXT more than once",
        ),
        (
            {
                "listeners": "A://h:1,B://i:1",
                "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
            },
            "A://h:1 and B://i:1 have the same port",
        ),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "cannot be advertised.*Set advertised.listen"),
        ({"listeners": "PLAINTEXT://[::]:9092"}, "cannot be advertised"),
        ({"advertised.listeners": "OTHER://h:1"}, "OTHER .*has no security protocol"),
        (
            {
                "advertised.listeners": "OTHER://h:1",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
            },
            "OTHER, which is not in listeners",
        ),
        ({"listener.security.protocol.map": "PLAINTEXT:TLS"}, "PLAINTEXT:TLS.*PLAINTEXT, SSL"),
        ({"inter.broker.listener.name": "X"}, "must be one of PLAINTEXT"),
        ({"node.id": "1", "broker.id": "2"}, "must be the same"),
        ({"node.id": "-1"}, "at least 0"),
        ({"controller.quorum.voters": "1@a:1,2@b"}, "write it as host:port"),
        ({"controller.quorum.voters": "a:1"}, "write it as id@host:port"),
        ({"controller.quorum.voters": "1@a:1,1@b:1"}, "names a node more than once"),
        ({"controller.quorum.bootstrap.servers": "a"}, "write it as host:port"),
        ({"process.roles": "observer"}, "one of: broker, controller"),
        ({"max.connections.per.ip": "0"}, "only together with max.connections.per.ip.overrides"),
        ({"max.connections.per.ip.overrides": "localhost"}, "write it as host:limit"),
        ({"queued.max.request.bytes": "100"}, "must be at least socket.request.max.bytes"),
        ({"log.dirs": ""}, "at least one directory"),
        ({"log.dirs": "/a,/b,/a"}, "names a directory twice"),
        ({"log.roll.ms": "0"}, r"log.roll.ms \(0\) must be at least 1"),
        ({"log.roll.jitter.ms": "-1"}, "must be at least 0"),
        ({"log.flush.interval.ms": "-1"}, "must be at least 0"),
        ({"log.retention.ms": "0"}, "at least 1, or -1 for no limit"),
        (
            {"authorizer.class.name": "a.B"},
            "Invalid value a.B for configuration authorizer.class.name",
        ),
        ({"config.providers": "file"}, "config.providers: It is not supported by this broker"),
        ({"num.partition": "1"}, "Unknown setting num.partition; did you mean num.partitions"),
        ({"num.io.threads": "0"}, "configuration num.io.threads: Value must be at least 1"),
    ],
)
def test_what_cannot_be_used_is_named(properties: dict[str, str], message: str) -> None:
    errors = errors_of(properties)
    assert len(errors) == 1
    assert re.search(message, errors[0])


def test_several_errors_come_together() -> None:
    assert len(errors_of({"num.partitions": "0", "nmu.partitions": "1", "log.dirs": "x"})) == 2
    assert len(errors_of({"node.id": "1", "broker.id": "2", "log.dirs": ""})) == 2


def test_connection_limits_of_single_addresses() -> None:
    overrides = BrokerConfig(
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "[::1]:7, localhost:9"}
    ).network.max_connections_per_ip_overrides
    assert overrides == {"::1": 7, "localhost": 9}


def test_a_listener_given_as_voter_only_is_this_node() -> None:
    assert BrokerConfig({"node.id": "7", "controller.quorum.voters": "7@h:1"}).node.node_id == 7


def test_settings_made_while_running_go_before_the_file() -> None:
    config = BrokerConfig({"log.retention.hours": "1", "max.connections": "5"})
    changed = config.with_dynamic(
        {"log.retention.ms": "7", "max.connections": "6"}, {"max.connections": "8"}
    )
    assert changed.log_defaults.retention_ms == 7
    assert changed.network.max_connections == 8
    assert config.network.max_connections == 5
    assert changed.with_dynamic({}, {}).values == config.values


def test_security_protocol_map_gives_controller_listeners_plaintext() -> None:
    config = BrokerConfig(
        {"listeners": "PLAINTEXT://h:1,CTRL://h:2", "controller.listener.names": "ctrl"}
    )
    assert config.network.listeners == (Endpoint("PLAINTEXT", "h", 1),)


def test_every_setting_of_kafka_is_accepted() -> None:
    """A file for Kafka may have settings that mean nothing here; they are named at the start."""
    config = BrokerConfig(
        {
            "sasl.kerberos.min.time.before.relogin": "50000",
            "sasl.enabled.mechanisms": "GSSAPI",
            "ssl.keystore.location": "/k",
            "remote.log.reader.threads": "10",
            "num.io.threads": "4",
            "num.network.threads": "3",
            "num.partitions": "4",
            "log.cleaner.min.compaction.lag.ms": "7",
            "listener.name.plaintext.ssl.keystore.password": "hunter2",
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": "Module required;",
            "rsm.config.bucket": "b",
        }
    )
    assert config.ignored() == [
        "sasl.kerberos.min.time.before.relogin",
        "ssl.keystore.location",
        "num.io.threads",
        "listener.name.plaintext.ssl.keystore.password",
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config",
        "rsm.config.bucket",
    ]
    described = {entry.setting.name: entry for entry in describe_broker(config)}
    assert described["sasl.kerberos.min.time.before.relogin"].source == Source.FILE
    assert described["ssl.truststore.type"].value == "JKS"
    assert described["listener.name.plaintext.ssl.keystore.password"].value is None


@pytest.mark.parametrize(
    "name",
    [
        "alter.config.policy.class.name",
        "client.quota.callback.class",
        "config.providers",
        "cordoned.log.dirs",
        "create.topic.policy.class.name",
        "principal.builder.class",
        "security.providers",
    ],
)
def test_settings_that_must_not_be_ignored_have_their_defaults(name: str) -> None:
    default = format_value(broker_settings()[name].default)
    assert BrokerConfig({name: default or ""}).ignored() == []
    (error,) = errors_of({name: "org.example.Mine"})
    assert f"{name}: It is not supported by this broker, and must not be ignored" in error


@pytest.mark.parametrize(
    "name", ["listener.name.x.num.partition", "listener.name.x", "rsm.confi.x"]
)
def test_other_names_are_still_unknown(name: str) -> None:
    (error,) = errors_of({name: "1"})
    assert error.startswith(f"Unknown setting {name}")


def test_node_id_and_broker_id_stand_for_each_other() -> None:
    for name in ("node.id", "broker.id"):
        described = {e.setting.name: e for e in describe_broker(BrokerConfig({name: "7"}))}
        for either in ("node.id", "broker.id"):
            assert (described[either].value, described[either].source) == ("7", Source.FILE)


def test_settings_without_effect_are_imported_when_they_are_needed() -> None:
    program = (
        "import sys; from ottla.config.broker import BrokerConfig;"
        "BrokerConfig({'num.partitions': '3'}).ignored();"
        "print('ottla.config.broker_settings.accepted' in sys.modules)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert shown.stdout == "False\n"


ONE_VOTER = {"node.id": "3", "controller.quorum.voters": "3@c:9093"}


def test_a_node_is_alone_if_it_is_a_broker_and_the_only_voter() -> None:
    assert BrokerConfig().is_alone
    assert BrokerConfig(ONE_VOTER).is_alone
    assert BrokerConfig({"process.roles": "broker"}).is_alone
    broker = {"node.id": "4", "process.roles": "broker"}
    assert not BrokerConfig({**ONE_VOTER, **broker}).is_alone
    listens = {"listeners": "CONTROLLER://:9093", "controller.listener.names": "CONTROLLER"}
    assert not BrokerConfig({**ONE_VOTER, **listens, "process.roles": "controller"}).is_alone


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"process.roles": "controller"}, "needs controller.quorum.voters or"),
        ({"process.roles": "controller", **ONE_VOTER}, "controller.listener.names must name"),
        (
            {"controller.quorum.bootstrap.servers": "a:9093"},
            "controller.listener.names must name the listener",
        ),
    ],
)
def test_a_controller_that_nobody_can_reach_is_refused(
    settings: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerConfig(settings)


def test_a_node_of_controllers_only_may_name_the_listener_of_brokers() -> None:
    config = BrokerConfig.from_properties(
        {
            "node.id": "3",
            "process.roles": "controller",
            "controller.quorum.voters": "1@a:9093,3@c:9093",
            "listeners": "CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
        }
    )
    assert config.network.listeners == ()
    assert config.network.inter_broker_listener_name == "PLAINTEXT"
