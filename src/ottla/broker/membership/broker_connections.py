"""Which connections to the controller belong to which broker.

When the last connection of a broker is closed, its process has probably ended. The controller
notices at once, instead of after the session timeout.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.connection import Connection


class BrokerConnections:
    """Connections on which brokers registered or sent heartbeats."""

    def __init__(self, lost: Callable[[int], None]) -> None:
        self._lost = lost
        self._broker_ids: dict[Connection, int] = {}

    def add(self, connection: Connection, broker_id: int) -> None:
        """Note that a connection is a broker's.

        It may have been closed while its request waited for a decision.
        """
        self._broker_ids[connection] = broker_id
        if connection.closed:
            self.closed(connection)

    def closed(self, connection: Connection) -> None:
        """Note that a connection was closed."""
        broker_id = self._broker_ids.pop(connection, None)
        if broker_id is not None and broker_id not in self._broker_ids.values():
            self._lost(broker_id)
