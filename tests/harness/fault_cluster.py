"""Three nodes of one cluster as processes of `ottla broker`, for tests that do them harm.

With `networks` each node has a network of its own, and can be cut off others.
With `disk_mebibytes` the records of each node are on a small file system of their own.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ottla.client.address import parse_addresses
from ottla.client.cluster import Client
from ottla.client.topics.topics import create_topics
from ottla.server.local_cluster import free_ports, new_cluster_id
from ottla.testing.active_controller import active_controller
from tests.harness.network_namespaces import NetworkNamespaces
from tests.harness.process import COMMAND, READY
from tests.harness.small_disk import SmallDisk

NODES: Final = (1, 2, 3)
SECOND_LIFE: Final = 100
"""Added to the id of a node, it names another process with that id."""
_FAST: Final = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "3000",
    "log.flush.offset.checkpoint.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
}
_STOP_TIMEOUT_S: Final = 60


class FaultCluster:
    """Brokers and controllers 1 to 3."""

    def __init__(
        self,
        directory: Path,
        *,
        networks: bool = False,
        disk_mebibytes: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self._directory = directory
        self.networks = NetworkNamespaces(NODES) if networks else None
        self.disks: dict[int, SmallDisk] = {}
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._ports = dict(zip(NODES, zip(*[iter(free_ports(6))] * 2, strict=True), strict=True))
        self._cluster_id = new_cluster_id()
        self._properties = _FAST | dict(properties or {})
        if disk_mebibytes is not None:
            for n in NODES:
                self.disks[n] = SmallDisk(directory / f"disk-{n}", disk_mebibytes)

    def __enter__(self) -> Self:
        try:
            for n in NODES:
                self.begin(n)
            for n in NODES:
                self.wait_until_ready(n)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill all nodes, and remove networks and disks."""
        for n in self._processes:
            self.kill(n)
        for disk in self.disks.values():
            disk.close()
        if self.networks is not None:
            self.networks.close()

    # -- processes -----------------------------------------------------------------------

    def begin(self, n: int) -> None:
        """Start a node, without waiting until it is ready."""
        self._launch(n, n, self._settings(n))

    def _launch(self, name: int, n: int, settings: Mapping[str, str]) -> None:
        config = self._directory / f"{name}.properties"
        config.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        words = [] if self.networks is None else self.networks.command(n)
        with self.log_file(name).open("a") as log:
            self._processes[name] = subprocess.Popen(
                [*words, *COMMAND, "broker", "--config", str(config)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def wait_until_ready(self, n: int) -> None:
        """Wait for `Ottla is ready`; raise AssertionError with its messages if it ends instead."""
        process = self._processes[n]
        assert process.stdout is not None
        line = process.stdout.readline()
        assert READY.search(line), f"node {n}: {self.log_file(n).read_text()[-2000:]}"

    def start(self, n: int) -> None:
        """Start a node and wait until it is ready."""
        self.begin(n)
        self.wait_until_ready(n)

    def kill(self, n: int) -> None:
        """End a node with SIGKILL; fine if it has ended."""
        self._processes[n].kill()
        self._wait(n)

    def stop(self, n: int) -> None:
        """End a node with SIGTERM, and wait until it has handed over and ended."""
        self._processes[n].terminate()
        assert self._wait(n) == 0, self.log_file(n).read_text()[-2000:]

    def _wait(self, n: int) -> int:
        process = self._processes[n]
        code = process.wait(_STOP_TIMEOUT_S)
        assert process.stdout is not None
        process.stdout.close()
        return code

    def pause(self, n: int) -> None:
        """Stop a node with SIGSTOP; it keeps its connections."""
        self._processes[n].send_signal(signal.SIGSTOP)

    def resume(self, n: int) -> None:
        """Let a paused node go on."""
        self._processes[n].send_signal(signal.SIGCONT)

    def begin_second_life(self, n: int, port: int, directory: Path) -> subprocess.Popen[str]:
        """Start another process with the id of a node, a broker only, and wait until it is ready.

        `close` ends it like the others.
        """
        settings = self._settings(n)
        settings |= {
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://{self._host(n)}:{port}",
            "log.dirs": str(directory),
        }
        del settings["metadata.log.dir"]
        second = SECOND_LIFE + n
        self._launch(second, n, settings)
        self.wait_until_ready(second)
        return self._processes[second]

    def is_running(self, n: int) -> bool:
        """Return True while the process of a node has not ended."""
        return self._processes[n].poll() is None

    def log_file(self, n: int) -> Path:
        """Return the file with the messages of a node."""
        return self._directory / f"{n}.log"

    # -- disks ---------------------------------------------------------------------------

    def data_directory(self, n: int) -> Path:
        """Return where the records of a node are; its metadata is elsewhere."""
        return (self.disks[n].directory if n in self.disks else self._directory) / f"data-{n}"

    def lose_data_directory(self, n: int) -> None:
        """Take the directory with the records away under a node that runs."""
        lost = self.data_directory(n).with_suffix(".lost")
        shutil.rmtree(lost, ignore_errors=True)
        self.data_directory(n).rename(lost)

    def erase(self, n: int) -> None:
        """Remove everything that a node has stored, its metadata included."""
        shutil.rmtree(self.data_directory(n), ignore_errors=True)
        shutil.rmtree(self._directory / f"meta-{n}", ignore_errors=True)

    # -- what is where -------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self.address(n) for n in NODES)

    def address(self, n: int) -> str:
        """Return where clients connect to a node."""
        return f"{self._host(n)}:{self._ports[n][0]}"

    def client(self) -> Client:
        """Return a client of the cluster; use it in a with block."""
        return Client(parse_addresses(self.bootstrap_servers))

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic with three replicas."""
        with self.client() as client:
            (made,) = create_topics(
                client, [name], partitions=partitions, replication_factor=3, configs={}
            )
            assert made.error is None, made.error

    def leader(self, topic: str, partition: int) -> int:
        """Return who leads a partition, -1 if nobody does."""
        return self._partition(topic, partition)[0]

    def isr(self, topic: str, partition: int) -> set[int]:
        """Return which replicas of a partition are in sync."""
        return self._partition(topic, partition)[1]

    def controller(self) -> int:
        """Return the id of the active controller."""
        running = [n for n in NODES if self.is_running(n)]
        return active_controller([f"{self._host(n)}:{self._ports[n][1]}" for n in running])

    def _partition(self, topic: str, partition: int) -> tuple[int, set[int]]:
        with self.client() as client:
            (found,) = client.metadata([topic], client.deadline("asking for a leader"))
            (one,) = (p for p in found.partitions if p.partition_index == partition)
            return one.leader_id, set(one.isr_nodes)

    def _host(self, n: int) -> str:
        return "127.0.0.1" if self.networks is None else self.networks.address(n)

    def _settings(self, n: int) -> dict[str, str]:
        host, (port, controller_port) = self._host(n), self._ports[n]
        voters = ",".join(f"{m}@{self._host(m)}:{self._ports[m][1]}" for m in NODES)
        return {
            "node.id": str(n),
            "process.roles": "broker,controller",
            "cluster.id": self._cluster_id,
            "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "log.dirs": f"{self._directory / f'meta-{n}'},{self.data_directory(n)}",
            "metadata.log.dir": str(self._directory / f"meta-{n}"),
            "offsets.topic.replication.factor": "3",
            "offsets.topic.num.partitions": "3",
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            **self._properties,
        }
