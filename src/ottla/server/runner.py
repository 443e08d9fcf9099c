"""A broker inside somebody else's process, in a thread of its own: for tests and notebooks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Final

from ottla.server.broker_process import Broker
from ottla.server.errors import StartupError

_METRICS_TIMEOUT_S: Final = 60
_LOOK_AGAIN_S: Final = 0.1


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
        self._answers: SimpleQueue[str | None] = SimpleQueue()
        self._resumed = threading.Event()
        self._resumed.set()

    @property
    def bootstrap_servers(self) -> str:
        return self._broker.bootstrap_servers

    def metrics(self) -> str:
        """Return the broker's metrics in Prometheus' text format, while it runs."""
        found: SimpleQueue[bytes] = SimpleQueue()
        self._broker.read_metrics(found.put)
        return found.get(timeout=_METRICS_TIMEOUT_S).decode()

    def start(self) -> None:
        """Return when clients can connect. Raise StartupError if the broker cannot start."""
        self.begin()
        self.wait_until_ready()

    def begin(self, brokers: int = 1) -> None:
        """Start without waiting until other nodes are there. Raise StartupError if it cannot.

        It is ready when it knows of this many `brokers` that are.
        """
        self._broker.open()
        self._broker.when_ready(lambda: self._answers.put(None), self._answers.put, brokers)
        self._thread.start()

    def wait_until_ready(self) -> None:
        """Return when clients can connect. Raise StartupError if the cluster refuses it."""
        refusal = self._answers.get()
        if refusal is not None:
            self._broker.stop(hand_over=False)
            self._thread.join()
            self._broker.close()
            raise StartupError(refusal)

    def _serve(self) -> None:
        try:
            self._broker.serve()
        except Exception as failure:  # told by `stop`; clients see that it is gone
            self._failure = failure
            self._broker.abandon()
            self._answers.put("the broker ended after an unexpected error")

    def stop(self, *, hand_over: bool = True) -> None:
        """Stop cleanly and wait for it. Raise RuntimeError if an error had ended the broker.

        Without `hand_over` it does not wait for other nodes to take over its partitions.
        """
        self.resume()
        self._broker.stop(hand_over=hand_over)
        self._thread.join()
        if self._failure is not None:
            raise RuntimeError("the broker ended after an unexpected error") from self._failure
        self._broker.close()

    def kill(self) -> None:
        """End it as SIGKILL would end a process: nobody takes over, nothing more is written."""
        self.resume()
        self._broker.stop(hand_over=False)
        self._thread.join()
        self._broker.vanish()

    def pause(self) -> None:
        """Let it stand still, as SIGSTOP would: it keeps its connections and is silent."""
        if not self._resumed.is_set():
            return
        self._resumed.clear()
        stands_still = threading.Event()

        def stand_still() -> None:
            stands_still.set()
            self._resumed.wait()

        self._broker.hold(stand_still)
        while not stands_still.wait(_LOOK_AGAIN_S) and self._thread.is_alive():
            pass

    def resume(self) -> None:
        """Let it go on; fine if it does not stand still."""
        self._resumed.set()
