"""The Network port: connections to other brokers, driven by the engine of this one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.network.engine import Engine
from ottla.network.stream import Connector
from ottla.ports import Random

if TYPE_CHECKING:
    from ottla.network.peer import EnginePeer


class Peers:
    """Makes peers. A node may connect them at any time, and send once the engine runs."""

    def __init__(
        self, make_connector: Callable[[], Connector], random: Random, max_response_bytes: int
    ) -> None:
        self._make_connector = make_connector
        self._connector: Connector | None = None
        self._engine: Engine | None = None
        self.random = random
        self.max_response_bytes = max_response_bytes

    def attach(self, engine: Engine) -> None:
        """Use this engine for all connections."""
        self._engine = engine

    @property
    def engine(self) -> Engine:
        assert self._engine is not None, "requests can be sent when the event loop runs"
        return self._engine

    @property
    def connector(self) -> Connector:
        if self._connector is None:
            self._connector = self._make_connector()
        return self._connector

    def connect(
        self, host: str, port: int, client_id: str, longest_backoff_ms: int = 1000
    ) -> EnginePeer:
        """Return a new connection to an endpoint, which is opened with the first request."""
        from ottla.network.peer import EnginePeer  # a broker on its own does without

        return EnginePeer(self, host, port, client_id, longest_backoff_ms)
