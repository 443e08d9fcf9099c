"""A standalone Spark on this machine: a master and two workers as processes, to be killed at will.

They are started from the jars of the installed pyspark, on free ports of 127.0.0.1, a core and
a gigabyte each. Whatever a worker starts (executors, their Python processes) is in the worker's
session, so nothing outlives `close`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.request import urlopen

import psutil

from tests.harness.deadline import eventually
from tests.harness.process_tree import descendants, has_ended, is_python, kill

WORKERS = 2
START_TIMEOUT_S = 120.0
_CLASSES = "org.apache.spark.deploy"
_EXECUTOR = "CoarseGrainedExecutorBackend"
_SETTINGS = {"spark.master.rest.enabled": "false", "spark.worker.cleanup.enabled": "false"}


class StandaloneSpark:
    """Master and workers with their logs and work directories below `directory`."""

    def __init__(self, directory: Path, hosts: Sequence[str] = ("127.0.0.1",)) -> None:
        """Prepare a cluster with a worker on each of the `hosts`.

        Spark makes no second attempt of a slow task on the host of the first, so speculation needs
        several.
        """
        self.master = ""
        self._hosts = hosts
        self._host_of: dict[str, str] = {}
        self._directory = directory
        self._state_url = ""
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._sessions: list[int] = []

    def start(self) -> None:
        """Start everything and return once the master knows its workers."""
        from ottla_spark.java import find_java

        self._java = find_java()
        self._directory.mkdir(parents=True, exist_ok=True)
        self._settings = self._directory / "settings.conf"
        self._settings.write_text("".join(f"{k} {v}\n" for k, v in _SETTINGS.items()))
        self._launch("master", "master.Master", "--host", "127.0.0.1", "--port", "0")
        self.master = self._said("master", r"Starting Spark master at (spark://\S+)")
        port = self._said("master", r"'MasterUI' on port (\d+)")
        self._state_url = f"http://127.0.0.1:{port}/json/"
        self._said("master", "New state: (ALIVE)")
        self.fill()

    def fill(self) -> None:
        """Start workers in place of killed ones, and wait until the master has them all."""
        for name, daemon in list(self._daemons.items()):
            if daemon.poll() is not None:
                del self._daemons[name]
        while len(self._daemons) <= WORKERS:
            name = f"worker-{len(self._sessions)}"
            words = ["--cores", "1", "--memory", "1g", "--work-dir", str(self._directory / name)]
            self._host_of[name] = self._free_host()
            words += ["--host", self._host_of[name]]
            self._launch(name, "worker.Worker", *words, self.master)
        eventually(
            lambda: self.state()["aliveworkers"] == WORKERS,
            f"{WORKERS} workers, logs in {self._directory}",
            START_TIMEOUT_S,
        )

    def _free_host(self) -> str:
        """Return the host with the fewest workers."""
        used = [self._host_of[name] for name in self._daemons if name in self._host_of]
        return min(self._hosts, key=used.count)

    def state(self) -> dict[str, object]:
        """Return what the master tells of workers and applications."""
        with urlopen(self._state_url, timeout=START_TIMEOUT_S) as answer:
            told: dict[str, object] = json.load(answer)
        return told

    def environment(self) -> dict[str, str]:
        """Return the environment of the cluster and its drivers: all on 127.0.0.1, quiet."""
        return {
            **os.environ,
            "JAVA_HOME": str(self._java.home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": _spark_home(),
        }

    def executors(self) -> list[psutil.Process]:
        """Return the executors that run now, oldest first."""
        found = [process for process in self._processes() if _is_executor(process)]
        return sorted(found, key=lambda process: (process.create_time(), process.pid))

    def python_workers(self) -> list[psutil.Process]:
        """Return the Python processes of all executors."""
        started = [each for executor in self.executors() for each in descendants(executor.pid)]
        return [process for process in started if is_python(process)]

    def executors_of(self, application: str) -> int:
        """Return how many executors the last application of this name has been given so far."""
        applications = [*self._applications("activeapps"), *self._applications("completedapps")]
        last = max(str(each["id"]) for each in applications if each["name"] == application)
        return sum(1 for place in self._directory.glob(f"worker-*/{last}/*") if place.is_dir())

    def kill_worker_of(self, executor: psutil.Process) -> None:
        """Kill the worker that started this executor. The executor itself lives on."""
        worker = next(d for d in self._daemons.values() if d.pid == os.getsid(executor.pid))
        worker.kill()
        worker.wait()

    def close(self) -> None:
        """End every process with everything it started."""
        for process in self._processes():
            kill(process)
        for daemon in self._daemons.values():
            daemon.wait()
        eventually(lambda: all(map(has_ended, self._processes())), "the end of every process")

    def _applications(self, kind: str) -> list[dict[str, object]]:
        found = self.state()[kind]
        assert isinstance(found, list)
        return found

    def _launch(self, name: str, kind: str, *words: str) -> None:
        command = [f"{_spark_home()}/bin/spark-class", f"{_CLASSES}.{kind}"]
        command += ["--webui-port", "0", "--properties-file", str(self._settings), *words]
        small = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        environment = self.environment() | {
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": small,
        }
        with (self._directory / f"{name}.log").open("wb") as log:
            self._daemons[name] = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        self._sessions.append(self._daemons[name].pid)

    def _said(self, name: str, pattern: str) -> str:
        log = self._directory / f"{name}.log"

        def look() -> re.Match[str] | None:
            assert self._daemons[name].poll() is None, log.read_text()
            return re.search(pattern, log.read_text())

        found = eventually(look, f"{pattern} in {log}", START_TIMEOUT_S)
        assert found is not None
        return found[1]

    def _processes(self) -> Iterator[psutil.Process]:
        """Yield everything that this cluster has started and that has not ended."""
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) in self._sessions:
                    yield process
            except ProcessLookupError:
                continue

    def __enter__(self) -> Self:
        try:
            self.start()
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


def _spark_home() -> str:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent)


def _is_executor(process: psutil.Process) -> bool:
    try:
        return any(word.endswith(_EXECUTOR) for word in process.cmdline())
    except psutil.NoSuchProcess:
        return False
