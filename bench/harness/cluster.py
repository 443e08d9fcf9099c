"""Three nodes as one cluster. The runner treats them like one broker.

Each node is broker and controller, as in a small installation. Both systems get the same settings:
three replicas, a write with acks=all needs two of them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from harness.broker import COMMON_PROPERTIES, RETRY_S, Broker, free_ports, write_properties
from harness.systems import Kafka, Ottla
from harness.target import Target

NODES = 3
LOOPBACK = "127.0.0.1"
STOP_TIMEOUT_S = 60.0

CLUSTER_PROPERTIES: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "default.replication.factor": str(NODES),
    "offsets.topic.replication.factor": str(NODES),
    "min.insync.replicas": "2",
}

PAUSED_PROPERTIES: Mapping[str, str] = {
    # A cluster that is paused while the other system is measured must not take that for a failure.
    "broker.session.timeout.ms": "3600000",
    "replica.lag.time.max.ms": "3600000",
    "controller.quorum.fetch.timeout.ms": "3600000",
    "controller.quorum.request.timeout.ms": "3600000",
    "request.timeout.ms": "3600000",
    "replica.socket.timeout.ms": "3600000",
}


class Cluster:
    """The nodes of one cluster; `nodes[0]` has the id 1."""

    def __init__(self, system: str, directory: Path, nodes: list[Broker]) -> None:
        self.system = system
        self.directory = directory
        self.nodes = nodes

    @property
    def port(self) -> int:
        """The port of the first node."""
        return self.nodes[0].port

    @property
    def other_ports(self) -> tuple[int, ...]:
        """The ports of the other nodes."""
        return tuple(node.port for node in self.nodes[1:])

    @property
    def running(self) -> bool:
        """True if all processes are running."""
        return all(node.running for node in self.nodes)

    @property
    def target(self) -> Target:
        """The ports and the processes of the running nodes."""
        first, *others = (node.target for node in self.nodes)
        return Target(first.port, first.pid, tuple(others))

    def node(self, node_id: int) -> Broker:
        """Return the node with this id."""
        return self.nodes[node_id - 1]

    def survivors(self, node_id: int) -> list[Broker]:
        """Return all nodes except one."""
        return [node for node in self.nodes if node is not self.node(node_id)]

    def spawn(self) -> None:
        """Start all processes and return at once."""
        for node in self.nodes:
            node.spawn()

    def start(self) -> None:
        """Start all processes and wait until their ports accept connections."""
        self.spawn()
        for node in self.nodes:
            node.wait()

    def stop(self) -> None:
        """Stop all processes with SIGTERM at once.

        The last one may wait for a controller that is gone. It is killed after a while.
        """
        for node in self.nodes:
            node.terminate()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while time.monotonic() < deadline and any(node.running for node in self.nodes):
            time.sleep(RETRY_S)
        self.kill()

    def kill(self) -> None:
        """Kill all processes."""
        for node in self.nodes:
            node.kill()

    def pause(self) -> None:
        """Pause all processes with SIGSTOP."""
        for node in self.nodes:
            node.pause()

    def resume(self) -> None:
        """Continue all processes."""
        for node in self.nodes:
            node.resume()

    def log_tail(self) -> str:
        """Return the last lines that each node printed."""
        return "\n".join(
            f"node {number}:\n{node.log_tail()}" for number, node in enumerate(self.nodes, 1)
        )


class ClusterSystem:
    """Makes clusters of Kafka or Ottla."""

    def __init__(self, system: Kafka | Ottla) -> None:
        self._system = system
        self.name = system.name
        self.version = system.version

    def new_broker(self, directory: Path) -> Cluster:
        """Return a cluster with new directories, not started, with default timeouts."""
        return self.new_cluster(directory, {})

    def new_pausable_broker(self, directory: Path) -> Cluster:
        """Return a cluster that can be paused."""
        return self.new_cluster(directory, PAUSED_PROPERTIES)

    def new_cluster(self, directory: Path, more: Mapping[str, str]) -> Cluster:
        """Return a cluster with new directories. `more` overrides its settings."""
        ports = free_ports(2 * NODES)
        controllers = ports[NODES:]
        voters = (f"{n}@{LOOPBACK}:{port}" for n, port in enumerate(controllers, 1))
        shared = {
            **COMMON_PROPERTIES,
            **CLUSTER_PROPERTIES,
            **more,
            "controller.quorum.voters": ",".join(voters),
        }
        cluster_id = self._system.new_cluster_id()
        nodes = [
            self._new_node(directory / f"node-{n}", n, ports[n - 1], controllers[n - 1], shared)
            for n in range(1, NODES + 1)
        ]
        for node in nodes:
            self._system.format(node.directory / "server.properties", cluster_id)
        return Cluster(self.name, directory, nodes)

    def _new_node(
        self, directory: Path, node_id: int, port: int, controller_port: int, shared: dict[str, str]
    ) -> Broker:
        directory.mkdir(parents=True)
        config = directory / "server.properties"
        listeners = f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}"
        own = {
            "node.id": str(node_id),
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
            "log.dirs": str(directory / "data"),
        }
        write_properties(config, {**shared, **own})
        return Broker(f"{self.name} node {node_id}", self._system.command(config), directory, port)
