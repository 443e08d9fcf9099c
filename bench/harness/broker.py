"""A broker process.

States: stopped -> start -> running <-> paused (SIGSTOP: it keeps its memory and its compiled code,
but uses no CPU while the other system is measured) -> stop or kill -> stopped.
"""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.problem import BenchError
from harness.target import Target

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 120.0
RETRY_S = 0.01
LOG_TAIL_LINES = 15
LOWEST_PORT, HIGHEST_PORT = 20_000, 32_000

COMMON_PROPERTIES: Mapping[str, str] = {
    "node.id": "1",
    "auto.create.topics.enable": "false",
    # Old segments are deleted soon, so that the machine's memory is reused.
    "log.segment.bytes": str(128 << 20),
    "log.retention.bytes": str(512 << 20),
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "500",
    "log.initial.task.delay.ms": "1000",
}


def free_port() -> int:
    """Return a free port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def free_ports(count: int) -> list[int]:
    """Return free ports of 127.0.0.1 that no outgoing connection takes meanwhile."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(LOWEST_PORT, HIGHEST_PORT)
        with socket.socket() as probe:
            if port not in found and probe.connect_ex(("127.0.0.1", port)) != 0:
                found.append(port)
    return found


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write a server.properties file."""
    lines = [f"{name}={value}\n" for name, value in properties.items()]
    path.write_text("".join(lines), encoding="utf-8")


class Broker:
    """One broker with its own directory, on 127.0.0.1."""

    def __init__(self, system: str, command: Sequence[str], directory: Path, port: int) -> None:
        self.system = system
        self.directory = directory
        self.port = port
        self._command = list(command)
        self._log = directory / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """True if the process is running."""
        return self._process is not None and self._process.poll() is None

    @property
    def target(self) -> Target:
        """The port and the process of the running broker."""
        assert self._process is not None, "the broker was not started"
        return Target(self.port, self._process.pid)

    def spawn(self) -> None:
        """Start the process and return at once."""
        assert not self.running, "the broker is already running"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.directory,
                start_new_session=True,
            )

    def start(self) -> None:
        """Start the process and wait until its port accepts connections."""
        self.spawn()
        self.wait()

    def wait(self) -> None:
        """Wait until the port accepts connections. Raise BenchError if it never does."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self.running:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(RETRY_S)
        self.kill()
        raise BenchError(f"{self.system} did not start:\n{self.log_tail()}")

    def terminate(self) -> None:
        """Send SIGTERM and return at once."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()

    def stop(self) -> None:
        """Stop the process with SIGTERM. If it does not end, kill it and raise BenchError."""
        if self._process is None:
            return
        self.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise BenchError(f"{self.system} did not stop in {STOP_TIMEOUT_S:.0f} s") from error
        self._process = None

    def kill(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Pause the broker with SIGSTOP."""
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the paused broker."""
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGCONT)

    def log_tail(self) -> str:
        """Return the last lines that the broker printed."""
        if not self._log.exists():
            return "(it printed nothing)"
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:]) or "(it printed nothing)"
