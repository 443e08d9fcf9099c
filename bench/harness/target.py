"""A running broker: its port, and the CPU and memory of its processes."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from harness.problem import BenchError


@dataclass(frozen=True)
class Target:
    """A running broker: its port on 127.0.0.1 and its process with children."""

    port: int
    pid: int

    def cpu_seconds(self) -> float:
        """Return the user and system time used so far."""
        return float(sum(sum(process.cpu_times()[:2]) for process in self._processes()))

    def resident_mb(self) -> float:
        """Return the resident memory in megabytes (10^6)."""
        return float(sum(process.memory_info().rss for process in self._processes()) / 1e6)

    def _processes(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess as error:
            raise BenchError("the broker ended while it was measured") from error


def target_at(port: int) -> Target:
    """Return the broker that listens on `port`, found among this user's processes."""
    for connection in psutil.net_connections("tcp"):
        listening = connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
        if listening and connection.pid is not None:
            return Target(port, connection.pid)
    raise BenchError(f"nothing listens on port {port}")
