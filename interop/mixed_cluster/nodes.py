"""Starts the nodes of a cluster, some of Ottla and some of Apache Kafka, with the same settings."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from harness.broker import Broker, free_ports, write_properties
from harness.jars import kafka_jars

SOURCE = Path(__file__).parents[2] / "src"
CLUSTER_ID = "bWl4ZWQtY2x1c3Rlci0wMQ"
BROKER, CONTROLLER, COMBINED = "broker", "controller", "broker,controller"
OTTLA, KAFKA = "ottla", "kafka"
FORMAT_TIMEOUT_S = 60
READY_TIMEOUT_S = 60
STATE_PARTITIONS = 6
Plan: TypeAlias = Mapping[int, tuple[str, str]]
"""The system and the roles of each node, by its id."""
_JVM = ("-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOG_LEVEL = "-Dorg.slf4j.simpleLogger.defaultLogLevel=info"
SETTINGS = {
    "cluster.id": CLUSTER_ID,
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
    "transaction.state.log.replication.factor": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "1000",
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
}


class MixedCluster:
    """Nodes of both systems on 127.0.0.1, by id."""

    def __init__(
        self,
        directory: Path,
        plan: Plan,
        more: Mapping[str, str] | None = None,
    ) -> None:
        self._directory = directory
        self._jars = kafka_jars(None)[0]
        ports = free_ports(2 * len(plan))
        self._ports = {node_id: (ports.pop(), ports.pop()) for node_id in plan}
        self._roles = {node_id: roles for node_id, (_, roles) in plan.items()}
        self._more = dict(more or {})
        self.system = {node_id: system for node_id, (system, _) in plan.items()}
        self.nodes = {node_id: self._new_node(node_id) for node_id in plan}

    @property
    def brokers(self) -> list[int]:
        return [node_id for node_id, roles in self._roles.items() if BROKER in roles]

    @property
    def voters(self) -> list[int]:
        return [node_id for node_id, roles in self._roles.items() if CONTROLLER in roles]

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(f"127.0.0.1:{self._ports[node_id][0]}" for node_id in self.brokers)

    def data(self, node_id: int) -> Path:
        """Return the log directory of a node."""
        return self._directory / str(node_id) / "data"

    def start(self, *node_ids: int) -> None:
        """Start nodes and wait until they are ready; without ids, all of them.

        Kafka's brokers listen when they are ready, Ottla's say so.
        """
        started = node_ids or tuple(self.nodes)
        said = {node_id: self._ready_count(node_id) for node_id in started}
        for node_id in started:
            self.nodes[node_id].spawn()
        for node_id in started:
            self.nodes[node_id].wait()
            deadline = time.monotonic() + READY_TIMEOUT_S
            while self.system[node_id] == OTTLA and self._ready_count(node_id) == said[node_id]:
                assert time.monotonic() < deadline, self.nodes[node_id].log_tail()
                time.sleep(0.05)

    def _ready_count(self, node_id: int) -> int:
        log = self._directory / str(node_id) / "broker.log"
        return log.read_text(encoding="utf-8").count("Ottla is ready") if log.exists() else 0

    def change(self, node_id: int, system: str) -> None:
        """Let the other system take over a stopped node with its data."""
        self.nodes[node_id].stop()
        self.system[node_id] = system
        self.nodes[node_id] = self._new_node(node_id)

    def kill(self, node_id: int) -> None:
        """End a node with SIGKILL."""
        self.nodes[node_id].kill()

    def pause(self, node_id: int) -> None:
        """Stop a node with SIGSTOP; it keeps its connections."""
        self.nodes[node_id].pause()

    def resume(self, node_id: int) -> None:
        """Let a paused node go on."""
        self.nodes[node_id].resume()

    def stop(self) -> None:
        """Kill all nodes."""
        for node in self.nodes.values():
            node.kill()

    # -- nodes ---------------------------------------------------------------------------

    def _new_node(self, node_id: int) -> Broker:
        directory = self._directory / str(node_id)
        directory.mkdir(parents=True, exist_ok=True)
        config = directory / f"{self.system[node_id]}.properties"
        write_properties(config, self._properties(node_id))
        if self.system[node_id] == OTTLA:
            program = ["env", f"PYTHONPATH={SOURCE}", sys.executable, "-m", "ottla.cli.main"]
            command = [*program, "broker", "--config", str(config)]
        else:
            if not (self.data(node_id) / "meta.properties").exists():
                self._format(config)
            command = self._java("kafka.Kafka", str(config))
        is_broker = BROKER in self._roles[node_id]
        port = self._ports[node_id][0 if is_broker else 1]
        return Broker(self.system[node_id], command, directory, port)

    def _properties(self, node_id: int) -> dict[str, str]:
        roles = self._roles[node_id]
        port, controller_port = self._ports[node_id]
        listeners = []
        if BROKER in roles:
            listeners.append(f"PLAINTEXT://127.0.0.1:{port}")
        if CONTROLLER in roles:
            listeners.append(f"CONTROLLER://127.0.0.1:{controller_port}")
        own = {
            "node.id": str(node_id),
            "process.roles": roles,
            "controller.quorum.voters": self._quorum_voters(),
            "listeners": ",".join(listeners),
            "log.dirs": str(self.data(node_id)),
        }
        settings = SETTINGS | own | self._more
        if self.system[node_id] == KAFKA:
            del settings["cluster.id"]
        return settings

    def _quorum_voters(self) -> str:
        return ",".join(f"{node_id}@127.0.0.1:{self._ports[node_id][1]}" for node_id in self.voters)

    def _format(self, config: Path) -> None:
        subprocess.run(
            self._java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config)),
            check=True,
            capture_output=True,
            timeout=FORMAT_TIMEOUT_S,
        )

    def _java(self, main_class: str, *arguments: str) -> list[str]:
        return ["java", *_JVM, _LOG_LEVEL, "-cp", f"{self._jars}/*", main_class, *arguments]


@contextmanager
def mixed_cluster(
    directory: Path,
    plan: Plan,
    more: Mapping[str, str] | None = None,
    *,
    later: Sequence[int] = (),
) -> Iterator[MixedCluster]:
    """Start the nodes of a cluster but for those of `later`, and kill all in the end."""
    cluster = MixedCluster(directory, plan, more)
    try:
        cluster.start(*(node_id for node_id in plan if node_id not in later))
        yield cluster
    finally:
        cluster.stop()
