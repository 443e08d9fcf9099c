"""How many connections there may be, in all and from one address, and for how long idle."""

from __future__ import annotations

from collections.abc import Mapping


class ConnectionLimits:
    """max.connections, max.connections.per.ip (and overrides), connections.max.idle.ms."""

    def __init__(
        self,
        max_connections: int,
        max_per_ip: int,
        per_ip_overrides: Mapping[str, int],
        max_idle_ms: int,
    ) -> None:
        self._by_host: dict[str, int] = {}
        self._count = 0
        self.max_idle_ms = max_idle_ms
        self.set(max_connections, max_per_ip, per_ip_overrides)

    def set(
        self, max_connections: int, max_per_ip: int, per_ip_overrides: Mapping[str, int]
    ) -> None:
        """Set new limits for new connections; existing ones stay."""
        self._max_connections = max_connections
        self._max_per_ip = max_per_ip
        self._overrides = dict(per_ip_overrides)

    @property
    def idle_check_ms(self) -> float | None:
        """How often to look for idle connections, or None when they may idle for ever."""
        return max(50.0, self.max_idle_ms / 10) if self.max_idle_ms >= 0 else None

    def admit(self, host: str) -> str | None:
        """Count a new connection and return None, or return why it is refused."""
        if self._count >= self._max_connections:
            return f"refused a connection of {host}: max.connections={self._max_connections}"
        mine = self._by_host.get(host, 0)
        allowed = self._overrides.get(host, self._max_per_ip)
        if mine >= allowed:
            return f"refused a connection of {host}: max.connections.per.ip is {allowed} for it"
        self._by_host[host] = mine + 1
        self._count += 1
        return None

    def leave(self, host: str) -> None:
        """Count a connection that was closed."""
        self._count -= 1
        left = self._by_host[host] - 1
        if left:
            self._by_host[host] = left
        else:
            del self._by_host[host]
