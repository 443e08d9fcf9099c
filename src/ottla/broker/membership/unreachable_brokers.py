"""Brokers whose process has probably ended, before the controller has fenced them.

A client that loses its leader asks another broker for the new one at once. If the answer is still
the old leader, it may not ask again for a second. So answers to Metadata wait while a broker is in
this set: mostly they have the new leaders then.

    added      the connection to it was closed, and it had not handed over its partitions
    removed    its address takes connections; the metadata says something new about it; or
               the time is over
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.controller.broker_probe import BrokerProbe, ProbeResult

if TYPE_CHECKING:
    from ottla.broker.node import Node

LONGEST_MS: Final = 500


class UnreachableBrokers:
    """What is known of closed connections, and who waits for the consequences."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._probe = BrokerProbe(node.ports.network, f"broker-{node.node_id}-probe")
        self._ids: set[int] = set()
        self._given_up: set[int] = set()
        """Those whose time is over. Nobody waits for them again before there is news of them."""
        self._waiting: list[Callable[[], None]] = []

    def __bool__(self) -> bool:
        return bool(self._ids)

    def wait(self, action: Callable[[], None]) -> None:
        """Call `action` when no broker is in the set any more."""
        assert self._ids
        self._waiting.append(action)

    def lost(self, broker_id: int) -> None:
        """Note that the connection to a broker was closed, and ask its address."""
        node = self._node
        broker = node.image.brokers.get(broker_id)
        is_known = broker_id in self._ids or broker_id in self._given_up
        if broker is None or not broker.active or is_known:
            return  # the metadata has told already who leads its partitions
        self._ids.add(broker_id)
        node.timers.at(node.clock.monotonic_ms() + LONGEST_MS, lambda: self._give_up(broker_id))

        def answered(result: ProbeResult) -> None:
            if result is ProbeResult.LISTENS:
                self.found(broker_id)

        self._probe.ask(broker, answered)

    def found(self, broker_id: int) -> None:
        """Note that a broker is there, or that the metadata tells what is known of it."""
        self._given_up.discard(broker_id)
        self._remove(broker_id)

    def _give_up(self, broker_id: int) -> None:
        if broker_id in self._ids:
            self._given_up.add(broker_id)
            self._remove(broker_id)

    def _remove(self, broker_id: int) -> None:
        self._ids.discard(broker_id)
        if not self._ids and self._waiting:
            waiting, self._waiting = self._waiting, []
            for action in waiting:
                action()
