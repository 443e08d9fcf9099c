"""Starts the two brokers to compare, with the same settings."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from harness.broker import Broker, free_port, write_properties
from harness.systems import Kafka

KAFKA_VERSION = "4.3.1"
SOURCE = Path(__file__).parents[2] / "src"
SETTINGS = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.assignment.interval.ms": "0",
    "message.max.bytes": "100000",
    "log.retention.hours": "100",
    "log.cleaner.backoff.ms": "15000",
    "num.io.threads": "4",
    "sasl.kerberos.min.time.before.relogin": "50000",
    "ssl.keystore.location": "/nowhere",
    "listener.name.plaintext.max.connections": "1000",
    "broker.session.timeout.ms": "600000",
}
_HEAP = ("-Xmx512m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class SmallKafka(Kafka):
    """Apache Kafka with a small heap: it answers single requests here."""

    def _java(self, main_class: str, *arguments: str) -> list[str]:
        log_level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        classes = f"{self._jars}/*"
        return ["java", *_HEAP, log_level, "-cp", classes, main_class, *arguments]

    def _properties(self, directory: Path, port: int, controller_port: int) -> dict[str, str]:
        return properties(directory, port, controller_port)


def properties(directory: Path, port: int, controller_port: int) -> dict[str, str]:
    """Return the settings of either system."""
    return SETTINGS | {
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(directory / "data"),
    }


def ottla(directory: Path, more: Mapping[str, str] | None = None) -> Broker:
    """Return a broker of this source tree, not started. `more` overrides its settings."""
    directory.mkdir(parents=True)
    port = free_port()
    config = directory / "server.properties"
    write_properties(config, properties(directory, port, free_port()) | dict(more or {}))
    program = ["env", f"PYTHONPATH={SOURCE}", sys.executable, "-m", "ottla.cli.main"]
    return Broker("Ottla", [*program, "broker", "--config", str(config)], directory, port)


def kafka(directory: Path) -> Broker:
    """Return a broker of Apache Kafka, not started. Raise BenchError without its jars."""
    return SmallKafka(KAFKA_VERSION).new_broker(directory)


def words_of(broker: Broker) -> dict[str, str]:
    """Return texts that only this broker's answers have, and what to show instead."""
    config = (broker.directory / "server.properties").read_text(encoding="utf-8")
    found = re.search(r"^controller.quorum.voters=.*:(\d+)$", config, re.MULTILINE)
    assert found is not None
    return {
        str(broker.directory): "<directory>",
        f":{broker.port}": ":<port>",
        f":{found[1]}": ":<controller port>",
    }


@contextmanager
def running(broker: Broker) -> Iterator[Broker]:
    """Start a broker, and stop it in the end."""
    broker.start()
    try:
        yield broker
    finally:
        if os.environ.get("COMPARE_SHOW_LOG"):
            print(broker.log_tail(), file=sys.stderr)
        broker.stop()
