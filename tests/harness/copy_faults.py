"""Faults of brokers and of copiers, each with its end, while copiers work in transactions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

from ottla.coordinator.runtime.partitioner import partition_of
from ottla.model.ids import TRANSACTIONS_TOPIC
from tests.harness.deadline import eventually
from tests.harness.exactly_once import Copies
from tests.harness.supervised import Supervised

STEP = 30
"""So many more copies of each partition show that everything goes on."""


class FaultyCluster(Protocol):
    """A cluster whose brokers can be killed and paused."""

    def kill(self, n: int) -> None: ...
    def start(self, n: int) -> None: ...
    def pause(self, n: int) -> None: ...
    def resume(self, n: int) -> None: ...
    def leader(self, topic: str, partition: int) -> int: ...
    def controller(self) -> int: ...


class CopyFaults:
    """Each public method but `go_on` is one fault. It returns when it is over and copies go on."""

    def __init__(
        self,
        cluster: FaultyCluster,
        copiers: Sequence[Supervised],
        copies: Copies,
        choose: random.Random,
        *,
        transactional_ids: Sequence[str],
        state_partitions: int,
        timeout_s: float = 60,
    ) -> None:
        self._cluster = cluster
        self._copiers = copiers
        self._copies = copies
        self._choose = choose
        self._transactional_ids = transactional_ids
        self._state_partitions = state_partitions
        self._timeout_s = timeout_s

    # -- brokers -------------------------------------------------------------------------

    def kill_leader(self) -> None:
        self._kill(self._target_leader(), "kill leader")

    def kill_coordinator(self) -> None:
        self._kill(self._coordinator(), "kill coordinator")

    def kill_controller(self) -> None:
        self._kill(self._cluster.controller(), "kill active controller")

    def pause_leader(self) -> None:
        self._pause(self._target_leader(), "pause leader")

    def pause_coordinator(self) -> None:
        self._pause(self._coordinator(), "pause coordinator")

    def pause_controller(self) -> None:
        self._pause(self._cluster.controller(), "pause active controller")

    def _target_leader(self) -> int:
        return self._leader(self._copies.target, self._choose.randrange(self._copies.partitions))

    def _coordinator(self) -> int:
        transactional_id = self._choose.choice(self._transactional_ids)
        partition = partition_of(transactional_id, self._state_partitions)
        return self._leader(TRANSACTIONS_TOPIC, partition)

    def _leader(self, topic: str, partition: int) -> int:
        return eventually(
            lambda: max(0, self._cluster.leader(topic, partition)), "there is a leader", 60
        )

    def _kill(self, n: int, what: str) -> None:
        self._cluster.kill(n)
        self.go_on(f"{what} {n}")
        self._cluster.start(n)
        self.go_on(f"{what} {n}, started again")

    def _pause(self, n: int, what: str) -> None:
        self._cluster.pause(n)
        try:
            self.go_on(f"{what} {n}")
        finally:
            self._cluster.resume(n)
        self.go_on(f"{what} {n}, resumed")

    # -- copiers -------------------------------------------------------------------------

    def kill_copier(self) -> None:
        self._choose.choice(self._copiers).kill()
        self.go_on("kill a copier")

    def fence_copier(self) -> None:
        """Pause a copier until its successor has taken over; then it goes on as a zombie."""
        copier = self._choose.choice(self._copiers)
        zombie = copier.replace()
        try:
            self.go_on("pause a copier")
        finally:
            copier.await_end(zombie)
        self.go_on("fence a copier")

    def go_on(self, what: str) -> None:
        """Wait until more copies are made."""
        try:
            self._copies.await_more(STEP, what, self._timeout_s)
        except AssertionError as error:
            tails = "\n".join(copier.tail() for copier in self._copiers)
            raise AssertionError(f"{error}\n{tails}") from None
