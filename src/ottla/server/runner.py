"""A broker inside somebody else's process, in a thread of its own: for tests and notebooks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from ottla.server.broker_process import Broker


def _ignore(message: str) -> None:
    """Nobody reads an embedded broker's messages unless asked for."""


class BrokerThread:
    """`start`, use `bootstrap_servers`, `stop`."""

    def __init__(
        self,
        properties: Mapping[str, str],
        memory: bool = False,
        report: Callable[[str], None] = _ignore,
    ) -> None:
        self._broker = Broker(properties, memory=memory, report=report)
        self._thread = threading.Thread(target=self._broker.serve, name="ottla", daemon=True)

    @property
    def bootstrap_servers(self) -> str:
        return self._broker.bootstrap_servers

    def start(self) -> None:
        """Return once clients can connect; StartupError when it cannot start."""
        self._broker.open()
        self._thread.start()

    def stop(self) -> None:
        """Stop cleanly and wait for it."""
        self._broker.stop()
        self._thread.join()
        self._broker.close()
