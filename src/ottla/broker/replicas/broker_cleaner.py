"""The log cleaner of a broker: its settings, its helper processes and its turns on the loop.

The cleaner is imported and made when the first log with cleanup.policy=compact is found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.step_imports import CLEANER, import_in_steps
from ottla.log.log import Log
from ottla.model.steps import Steps
from ottla.ports import HelperProcesses

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.config.broker import BrokerConfig
    from ottla.log.cleaner.log_cleaner import LogCleaner

_LOGS_A_STEP: Final = 500
_COUNTED_EVERY_MS: Final = 200
_FEW_PER_SECOND: Final = 20
"""Clients that only wait (long polls, heartbeats) send about this many requests."""


class BrokerCleaner:
    """Looks for compacted logs from time to time, and is the host of the cleaner."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.cleaner: LogCleaner | None = None
        self._is_looking = False
        self._requests = 0
        """How many requests there were when they were last counted."""
        self._counted_ms = node.monotonic_ms
        """When they were last counted."""
        self._serves_clients = False
        node.on_config.append(self._reconfigure)

    def start(self) -> None:
        """Begin to look for compacted logs."""
        self.call_later(self._node.config.cleaner.log_cleaner_backoff_ms, self._tick)

    def check_soon(self) -> None:
        """Look for logs to clean now: settings have changed."""
        if self.cleaner is not None:
            self.cleaner.check_soon()
        elif not self._is_looking:
            self._is_looking = True
            self.run(self._look_for_compacted())

    def _look_for_compacted(self) -> Steps[None]:
        """Make the cleaner if there is a compacted log."""
        for number, log in enumerate(list(self._node.store), 1):
            if log.config.compacts:
                yield from import_in_steps(CLEANER)
                if self.cleaner is None:
                    self._make()
                assert self.cleaner is not None
                self.cleaner.check_soon()
                break
            if not number % _LOGS_A_STEP:
                yield
        self._is_looking = False

    def request(self, log: Log) -> None:
        """Clean a log soon, whatever its dirty ratio."""
        if self.cleaner is None:
            self._make()
        assert self.cleaner is not None
        self.cleaner.request(log)

    def _tick(self) -> None:
        self.check_soon()
        self.call_later(max(self._node.config.cleaner.log_cleaner_backoff_ms, 100), self._tick)

    def _make(self) -> None:
        from ottla.log.cleaner.log_cleaner import LogCleaner

        self.cleaner = LogCleaner(self._node.store, self, self._node.config.cleaner)
        self.cleaner.on_cleaned = self._cleaned

    def _cleaned(self, log: Log) -> None:
        if self._node.tier is not None and log.config.remote_storage_enable:
            self._node.tier.log_cleaned(log)

    def _reconfigure(self, config: BrokerConfig) -> None:
        if self.cleaner is not None:
            self.cleaner.reconfigure(config.cleaner)

    # -- the host of the cleaner ---------------------------------------------------------

    @property
    def helpers(self) -> HelperProcesses:
        return self._node.ports.helpers

    def run(self, steps: Steps[Any]) -> None:
        """Run steps now and later, a little at a time."""
        self._node.sliced_work.run(steps)

    def call_later(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Call `action` after a delay."""
        self._node.timers.at(self._node.monotonic_ms + delay_ms, action)

    def serves_clients(self) -> bool:
        """Return True while clients send more than a few requests per second."""
        node = self._node
        passed_ms = node.monotonic_ms - self._counted_ms
        if passed_ms >= _COUNTED_EVERY_MS:
            requests = node.pipeline.request_count()
            rate = (requests - self._requests) * 1000 / passed_ms
            self._serves_clients = rate > _FEW_PER_SECOND
            self._requests, self._counted_ms = requests, node.monotonic_ms
        return self._serves_clients

    def storage_failed(self, log: Log, error: OSError) -> None:
        """Handle a storage error of a log; its directory may go offline."""
        self._node.hosted_logs.log_failed(log, error)

    def report(self, message: str) -> None:
        """Tell the operator."""
        self._node.report(message)
