"""A broker inside somebody else's process, in a thread of its own: for tests and notebooks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from ottla.server.broker_process import Broker


def _ignore(message: str) -> None:
    """Drop a message: nobody reads those of an embedded broker unless asked for."""


class BrokerThread:
    """`start`, use `bootstrap_servers`, `stop`."""

    def __init__(
        self,
        properties: Mapping[str, str],
        memory: bool = False,
        report: Callable[[str], None] = _ignore,
    ) -> None:
        self._broker = Broker(properties, memory=memory, report=report)
        self._thread = threading.Thread(target=self._serve, name="ottla", daemon=True)
        self._failure: Exception | None = None

    @property
    def bootstrap_servers(self) -> str:
        return self._broker.bootstrap_servers

    def start(self) -> None:
        """Return when clients can connect. Raise StartupError if the broker cannot start."""
        self._broker.open()
        self._thread.start()

    def _serve(self) -> None:
        try:
            self._broker.serve()
        except Exception as failure:  # told by `stop`; clients see that it is gone
            self._failure = failure
            self._broker.abandon()

    def stop(self) -> None:
        """Stop cleanly and wait for it. Raise RuntimeError if an error had ended the broker."""
        self._broker.stop()
        self._thread.join()
        if self._failure is not None:
            raise RuntimeError("the broker ended after an unexpected error") from self._failure
        self._broker.close()
