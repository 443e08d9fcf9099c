"""The two systems. Each is started as its users start it, with the same log settings."""

from __future__ import annotations

import compileall
import shutil
import subprocess
import sys
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol, TypeVar
from uuid import uuid4

import ottla
from harness.broker import COMMON_PROPERTIES, Broker, free_port, write_properties
from harness.jars import kafka_jars
from harness.problem import BenchError

FORMAT_TIMEOUT_S = 60

# The heap and garbage collector flags of Kafka's own start script.
JVM_FLAGS = (
    "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15", "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)  # fmt: skip


B_co = TypeVar("B_co", covariant=True)


class System(Protocol[B_co]):
    """A system that can be measured."""

    name: str
    version: str

    def new_broker(self, directory: Path) -> B_co:
        """Return a broker or cluster with new directories, not started."""

    def new_pausable_broker(self, directory: Path) -> B_co:
        """Return one that takes no harm when it is paused for minutes."""


class Kafka:
    """Apache Kafka in KRaft mode, broker and controller in one process."""

    name = "Kafka"

    def __init__(self, wanted_version: str | None) -> None:
        self._jars, self.version = kafka_jars(wanted_version)

    def format(self, config: Path, cluster_id: str) -> None:
        """Format the directories of a node."""
        done = self._tool("format", "-t", cluster_id, "-c", str(config))
        if done.returncode != 0:
            raise BenchError(f"Kafka's storage could not be formatted: {done.stderr.strip()}")

    def command(self, config: Path) -> list[str]:
        """Return the command that runs a node."""
        return self._java("kafka.Kafka", str(config))

    def new_broker(self, directory: Path, more: Mapping[str, str] | None = None) -> Broker:
        """Return a broker with a formatted directory. `more` overrides its settings."""
        directory.mkdir(parents=True)
        port, controller_port = free_port(), free_port()
        config = directory / "server.properties"
        properties = self._properties(directory, port, controller_port)
        write_properties(config, properties | dict(more or {}))
        self.format(config, self.new_cluster_id())
        return Broker(self.name, self.command(config), directory, port)

    def new_pausable_broker(self, directory: Path) -> Broker:
        """Return a broker like all others."""
        return self.new_broker(directory)

    def _properties(self, directory: Path, port: int, controller_port: int) -> dict[str, str]:
        return {
            **COMMON_PROPERTIES,
            "process.roles": "broker,controller",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(directory / "data"),
            # One broker cannot have the default of three replicas.
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            # The controller must not fence a paused broker.
            "broker.session.timeout.ms": "3600000",
        }

    def new_cluster_id(self) -> str:
        """Return a new id for a cluster."""
        made = self._tool("random-uuid").stdout.split()
        return made[-1] if made else ""

    def _tool(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = self._java("kafka.tools.StorageTool", *arguments)
        return subprocess.run(
            command, capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S, check=False
        )

    def _java(self, main_class: str, *arguments: str) -> list[str]:
        return ["java", *JVM_FLAGS, "-cp", f"{self._jars}/*", main_class, *arguments]


class Ottla:
    """The `ottla` command of the harness's Python environment."""

    name = "Ottla"

    def __init__(self) -> None:
        beside = Path(sys.executable).parent / "ottla"
        found = str(beside) if beside.exists() else shutil.which("ottla")
        if found is None:
            raise BenchError("the command `ottla` is not installed in this environment")
        try:
            self.version = version("ottla")
        except PackageNotFoundError as error:
            raise BenchError("the package ottla is not installed in this environment") from error
        self._start = [found]
        # As pip does. Otherwise changed files might be compiled again with every start.
        compileall.compile_dir(Path(ottla.__file__).parent, quiet=1)

    def new_broker(self, directory: Path, more: Mapping[str, str] | None = None) -> Broker:
        """Return a broker with a new directory. `more` overrides its settings."""
        directory.mkdir(parents=True)
        port = free_port()
        config = directory / "server.properties"
        properties = {
            **COMMON_PROPERTIES,
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(directory / "data"),
            **(more or {}),
        }
        write_properties(config, properties)
        return Broker(self.name, self.command(config), directory, port)

    def new_pausable_broker(self, directory: Path) -> Broker:
        """Return a broker like all others."""
        return self.new_broker(directory)

    def new_cluster_id(self) -> str:
        """Return a new id for a cluster."""
        return urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")

    def format(self, config: Path, cluster_id: str) -> None:
        """Tell a node the id of its cluster. It formats its directories when it starts."""
        with config.open("a", encoding="utf-8") as properties:
            properties.write(f"cluster.id={cluster_id}\n")

    def command(self, config: Path) -> list[str]:
        """Return the command that runs a node."""
        return [*self._start, "broker", "--config", str(config)]


class EarlierOttla(Ottla):
    """Ottla from another checkout, with the Python environment of the harness."""

    name = "Before"

    def __init__(self, checkout: Path) -> None:
        super().__init__()
        source = checkout.resolve() / "src"
        if not (source / "ottla").is_dir():
            raise BenchError(f"{checkout} is not a checkout of Ottla: it has no src/ottla")
        compileall.compile_dir(source / "ottla", quiet=1)
        self._start = ["env", f"PYTHONPATH={source}", *self._start]


class CompiledOttla(Ottla):
    """Ottla with the modules that `make compile` compiles, which this runs first."""

    def __init__(self) -> None:
        super().__init__()
        root = Path(__file__).parents[2]
        made = subprocess.run(
            ["make", "--silent", "compile"], cwd=root, capture_output=True, text=True, check=False
        )
        if made.returncode != 0:
            raise BenchError(f"`make compile` failed: {made.stderr.strip()[-500:]}")
        self.version = f"{self.version}, compiled"
        self._start = ["env", f"PYTHONPATH={root / 'build/compiled'}", *self._start]
