"""Broker processes: the `ottla` command as a user runs it, to be stopped, killed and measured."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tests.harness.deadline import Deadline

COMMAND = (sys.executable, "-m", "ottla.cli.main")
READY = re.compile(r"ready at (\S+)")
STALL = "the event loop was held for"


def without_stalls(text: str) -> str:
    """Return messages of a broker without reports of stalls: others may have had the processor."""
    return "".join(line for line in text.splitlines(keepends=True) if STALL not in line)


def run_ottla(*words: str, timeout_s: float = 20.0) -> subprocess.CompletedProcess[str]:
    """Run a command that is expected to end by itself."""
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, timeout=timeout_s, check=False
    )


class BrokerProcess:
    """`ottla up` on 127.0.0.1; the port picked at the first start is kept at later ones."""

    def __init__(
        self,
        data_dir: Path | None,
        *,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.port = port
        self.settings = dict(settings or {})
        self.bootstrap_servers = ""
        self.output: list[str] = []
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # as long-lived as this object
        self._process: subprocess.Popen[str] | None = None

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None, "the broker was not started"
        return self._process

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def errors(self) -> str:
        """All it has said on stderr, over all starts, but for stalls of its event loop."""
        self._errors.seek(0)
        return without_stalls(self._errors.read())

    def command(self) -> list[str]:
        where = ["--memory"] if self.data_dir is None else ["--data-dir", str(self.data_dir)]
        named = [word for item in self.settings.items() for word in ("--set", "=".join(item))]
        return [*COMMAND, "up", "--port", str(self.port), *where, *named]

    def start(self, timeout_s: float = 20.0) -> None:
        """Start it and return once it says that it is ready."""
        assert not self.running
        self._process = subprocess.Popen(
            self.command(), stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        line = self._first_line(Deadline(timeout_s))
        found = READY.search(line)
        if found is None:
            self.kill()
            raise AssertionError(f"no ready line but {line!r}; stderr: {self.errors}")
        self.output.append(line)
        self.bootstrap_servers = found.group(1)
        if "advertised.listeners" not in self.settings:
            self.port = int(self.bootstrap_servers.rpartition(":")[2])

    def _first_line(self, deadline: Deadline) -> str:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], deadline.left)
        return self.process.stdout.readline() if ready else ""

    def stop(self, how: signal.Signals = signal.SIGTERM, timeout_s: float = 15.0) -> int:
        """Ask it to stop and return its exit code."""
        self.process.send_signal(how)
        return self._collect(timeout_s)

    def kill(self) -> int:
        """Send SIGKILL: the process cannot clean up anything."""
        self.process.kill()
        return self._collect(10.0)

    def _collect(self, timeout_s: float) -> int:
        try:
            output, _ = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise AssertionError(f"still running {timeout_s} s after it was told to stop") from None
        self.output += output.splitlines()
        return self.process.returncode

    def rss_bytes(self) -> int:
        """Return the resident memory now."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def cpu_s(self) -> float:
        """Return the processor time it has used so far."""
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def open_files(self) -> int:
        """Return the number of open descriptors, sockets included."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self.running:
                code = self.stop()
                assert error or code == 0, f"exit code {code}; stderr: {self.errors}"
        finally:
            self._errors.close()


def files_under(directory: Path) -> dict[str, bytes]:
    """Return every file below a directory with its content, to show that nothing was touched."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def properties_text(properties: Mapping[str, str]) -> str:
    """Return a properties file of these settings."""
    return "".join(f"{name}={value}\n" for name, value in properties.items())
