"""A broker of a test's cluster, on a thread of the test's process."""

from __future__ import annotations

from collections.abc import Callable

from ottla.server.runner import BrokerThread
from ottla.testing.broker_log import BROKER_LOG


class ThreadBroker:
    """A broker that can be started again after it was stopped or killed."""

    def __init__(self, node_id: int, settings: Callable[[], dict[str, str]], memory: bool) -> None:
        self._node_id = node_id
        self._settings = settings
        self._memory = memory
        self._thread: BrokerThread | None = None

    @property
    def running(self) -> bool:
        return self._thread is not None

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect, while it runs."""
        assert self._thread is not None
        return self._thread.bootstrap_servers

    def begin(self, brokers: int) -> None:
        """Start, as one of `brokers` brokers, without waiting. Raise StartupError if it cannot."""
        thread = BrokerThread(self._settings(), memory=self._memory, report=BROKER_LOG.add)
        thread.begin(brokers)
        self._thread = thread

    def wait_until_ready(self) -> None:
        """Return when clients can connect. Raise StartupError if the cluster refuses it."""
        assert self._thread is not None
        try:
            self._thread.wait_until_ready()
        except BaseException:
            self._thread = None
            raise

    def stop(self, *, hand_over: bool) -> None:
        """Stop cleanly; fine if it does not run."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop(hand_over=hand_over)

    def kill(self) -> None:
        """End it as a crash would end a process."""
        thread = self._running()
        self._thread = None
        thread.kill()

    def pause(self) -> None:
        """Let it stand still: its connections stay open and nobody answers."""
        self._running().pause()

    def resume(self) -> None:
        """Let a paused broker go on."""
        self._running().resume()

    def metrics(self) -> str:
        """Return the broker's metrics in Prometheus' text format."""
        assert self._thread is not None
        return self._thread.metrics()

    def _running(self) -> BrokerThread:
        if self._thread is None:
            raise RuntimeError(f"broker {self._node_id} is not running")
        return self._thread
