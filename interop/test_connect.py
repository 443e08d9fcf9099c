"""Kafka Connect loads a file into a topic of Ottla exactly once, while workers and brokers die.

A worker with exactly.once.source.support writes the records and the place in the file in one
transaction, and takes over its tasks by fencing the transactional ids of the worker before.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from java_programs import SIGTERM_CODE, jars_of, java_command

from harness.broker import free_ports, write_properties
from harness.jars import kafka_jars
from harness.problem import BenchError
from tests.harness.deadline import eventually
from tests.harness.exactly_once import read_committed
from tests.harness.fault_cluster import FaultCluster
from tests.harness.supervised import Supervised

pytestmark = pytest.mark.timeout(600)
TOPIC, CONNECTOR = "lines", "file"
LINES = 500
"""So many lines are added to the file at once."""
TIMEOUT_S = 180
REST_TIMEOUT_S = 10
_STRINGS = "org.apache.kafka.connect.storage.StringConverter"


class Worker(Supervised):
    """A worker of Kafka Connect. Its REST interface is at `port`."""

    def __init__(self, servers: str, directory: Path) -> None:
        try:
            class_path = f"{kafka_jars(None)[0]}/*:{jars_of('connect-file')}/*"
        except BenchError as error:
            pytest.skip(str(error))
        (self.port,) = free_ports(1)
        settings = {
            "bootstrap.servers": servers,
            "group.id": "workers",
            "exactly.once.source.support": "enabled",
            "listeners": f"http://127.0.0.1:{self.port}",
            "key.converter": _STRINGS,
            "value.converter": _STRINGS,
            "plugin.discovery": "only_scan",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",
        }
        for what in ("offset", "config", "status"):
            settings[f"{what}.storage.topic"] = f"connect-{what}"
            settings[f"{what}.storage.replication.factor"] = "3"
        for what in ("offset", "status"):
            settings[f"{what}.storage.partitions"] = "1"
        config = directory / "worker.properties"
        write_properties(config, settings)
        super().__init__(
            java_command(
                "org.apache.kafka.connect.cli.ConnectDistributed", str(config),
                class_path=class_path,
            ),
            directory / "worker.log",
            restarts_on={1, 2, 3},
            zombie_ends=(),
            stops={SIGTERM_CODE},
        )  # fmt: skip

    def put(self, path: str, body: dict[str, str]) -> bool:
        """Send a PUT request. Return False while the worker cannot answer it."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method="PUT",
        )
        try:
            with urllib.request.urlopen(request, timeout=REST_TIMEOUT_S):
                return True
        except (urllib.error.URLError, OSError):
            return False


class GrowingFile:
    """A file of numbered lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[bytes] = []
        path.touch()

    def grow(self) -> None:
        """Add lines."""
        more = [b"line %d" % number for number in range(len(self.lines), len(self.lines) + LINES)]
        with self.path.open("ab") as file:
            file.write(b"".join(line + b"\n" for line in more))
        self.lines += more


def test_connect_loads_a_file_exactly_once(tmp_path: Path, kafka_tool: object) -> None:
    with FaultCluster(tmp_path) as cluster, Worker(cluster.bootstrap_servers, tmp_path) as worker:
        cluster.create_topic(TOPIC, 1)
        file = GrowingFile(tmp_path / "input")
        connector = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "tasks.max": "1",
            "file": str(file.path),
            "topic": TOPIC,
            "batch.size": "7",
            "exactly.once.support": "required",
            "transaction.boundary": "poll",
        }

        def load(what: str) -> None:
            """Wait until some more lines are in the topic; the file has more of them."""
            file.grow()
            wanted = len(file.lines) - LINES // 2
            eventually(
                lambda: len(read_committed(cluster.bootstrap_servers, TOPIC, 1)) >= wanted,
                f"lines are loaded after: {what}\n{worker.tail()}",
                TIMEOUT_S,
            )

        eventually(
            lambda: worker.put(f"/connectors/{CONNECTOR}/config", connector),
            "the connector is created",
            TIMEOUT_S,
        )
        load("start")
        worker.kill()
        load("kill the worker")
        for n in {cluster.leader(TOPIC, 0), cluster.controller()}:
            file.grow()
            cluster.kill(n)
            load(f"kill broker {n}")
            cluster.start(n)
        file.grow()
        worker.kill()
        load("kill the worker again")
        loaded = read_committed(cluster.bootstrap_servers, TOPIC, 1)
        # The connector keeps the last lines to itself until more are added to the file.
        assert loaded == file.lines[: len(loaded)]
