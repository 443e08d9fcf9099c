"""Gives partitions back to their preferred leaders, now and then (auto.leader.rebalance.enable).

A broker gets its partitions back if others lead more than leader.imbalance.per.broker.percentage of
those that it is preferred for. The active controller looks at all partitions in steps, and moves
some at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ottla.config.broker import BrokerConfig
from ottla.controller.elections import elect_preferred
from ottla.controller.quorum_controller import QuorumController
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ApiError
from ottla.model.steps import Steps
from ottla.ports import Clock
from ottla.replication.timers import Timer, Timers
from ottla.wire.message import Message

MOST_AT_A_TIME: Final = 1000
"""How many leaders one decision changes at most, as in Kafka."""


class LeaderBalance:
    """The periodic election of preferred leaders, while this controller is active."""

    def __init__(
        self,
        controller: QuorumController,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._controller = controller
        self._config = config
        self._clock = clock
        self._timers = timers
        self._timer: Timer | None = None
        controller.on_leadership.append(self._leadership_changed)

    def _leadership_changed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._controller.is_active:
            self._wait()

    def _wait(self) -> None:
        interval_s = self._config().replication.leader_imbalance_check_interval_seconds
        due_ms = self._clock.monotonic_ms() + interval_s * 1000
        self._timer = self._timers.at(due_ms, self._balance)

    def _balance(self) -> None:
        self._timer = None
        if not self._config().replication.auto_leader_rebalance_enable:
            self._wait()
            return
        moved = 0

        def decide(image: MetadataImage) -> Steps[Sequence[Message]]:
            nonlocal moved
            records = yield from elect_preferred(image, self._config(), MOST_AT_A_TIME)
            moved = len(records)
            return records

        def committed(error: ApiError | None) -> None:
            if self._timer is not None or not self._controller.is_active:
                return
            if error is None and moved == MOST_AT_A_TIME:
                self._balance()
            else:
                self._wait()

        self._controller.decide(decide, committed)
