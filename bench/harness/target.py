"""A running broker or cluster: its ports, and the CPU and memory of its processes."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from harness.problem import BenchError


@dataclass(frozen=True)
class Target:
    """A running broker, or the brokers of a cluster: ports on 127.0.0.1 and processes."""

    port: int
    """The port of the first broker."""
    pid: int
    """The process of the first broker."""
    more: tuple[Target, ...] = ()
    """The other brokers of a cluster."""

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports of all brokers."""
        return (self.port, *(each.port for each in self.more))

    @property
    def ports_text(self) -> str:
        """The ports of all brokers for a load generator."""
        return ",".join(map(str, self.ports))

    def cpu_seconds(self) -> float:
        """Return the user and system time used so far."""
        return float(sum(sum(process.cpu_times()[:2]) for process in self._processes()))

    def resident_mb(self) -> float:
        """Return the resident memory of all brokers in megabytes (10^6)."""
        return float(sum(process.memory_info().rss for process in self._processes()) / 1e6)

    def _processes(self) -> list[psutil.Process]:
        try:
            roots = [psutil.Process(each.pid) for each in (self, *self.more)]
            return [every for root in roots for every in (root, *root.children(recursive=True))]
        except psutil.NoSuchProcess as error:
            raise BenchError("the broker ended while it was measured") from error


def target_at(port: int) -> Target:
    """Return the broker that listens on `port`, found among this user's processes."""
    for connection in psutil.net_connections("tcp"):
        listening = connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
        if listening and connection.pid is not None:
            return Target(port, connection.pid)
    raise BenchError(f"nothing listens on port {port}")
