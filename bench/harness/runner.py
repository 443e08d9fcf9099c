"""Runs workloads against the systems in turn. While one broker works, the others are paused.

If a workload fails, or a part of it takes longer than `STEP_LIMIT_S`, this is noted and the others
continue. A workload that failed with a system is not tried again with it. No broker is running
when `run_all` returns or raises.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Final, Generic, TypeVar

import psutil
from confluent_kafka import KafkaException

from harness.broker import Broker
from harness.cluster import Cluster
from harness.fresh import FreshWork
from harness.problem import BenchError
from harness.results import Results
from harness.scale import Scale
from harness.systems import System
from harness.target import Target
from harness.time_limit import time_limit
from harness.warm_up import warm_up
from harness.works import Work
from ottla.client.errors import ClientError

STEP_LIMIT_S: Final = 600.0
"""The longest time for one round, or for the preparation of a workload, on one system."""

FAILURES: Final = (
    BenchError,
    ClientError,
    KafkaException,
    OSError,
    psutil.Error,
    subprocess.SubprocessError,
)
"""What ends a workload on one system, and not the run."""

B = TypeVar("B", bound=Broker | Cluster)


@dataclass
class Runner(Generic[B]):
    """One run of all workloads. It calls `say` with what it does now, `step` after each part."""

    systems: Sequence[System[B]]
    scale: Scale
    keep: bool
    results: Results
    warm_up: Callable[[Target, Scale], None] = warm_up
    settle_s: float = 0.3
    """The time that a broker gets after a pause, for its overdue timers."""
    rounds_limit_s: float = inf
    """No further round of a workload begins after this time."""
    say: Callable[[str], None] = print
    step: Callable[[], None] = lambda: None
    base: Path = Path()
    brokers: list[B] = field(default_factory=list)

    def steps(self, works: Sequence[Work], fresh: Sequence[FreshWork[B]]) -> int:
        """Return the maximum number of calls of `step`."""
        warm_ups = 1 if works else 0
        rounds = sum(work.rounds for work in works) + sum(work.rounds for work in fresh)
        return len(self.systems) * (warm_ups + rounds)

    def run_all(self, base: Path, works: Sequence[Work], fresh: Sequence[FreshWork[B]]) -> None:
        """Measure everything, with the brokers' directories under `base`."""
        self.base = base
        try:
            if works:
                self._run_warm(works)
            for work in fresh:
                self._run_fresh(work)
        finally:
            self._end_brokers()

    def _run_warm(self, works: Sequence[Work]) -> None:
        for broker in list(self._new_brokers("warm", pausable=True)):
            self.say(f"starting and warming up {broker.system}")
            if not self._attempt("warm-up", broker, self._make_ready):
                self.brokers.remove(broker)
                broker.kill()
            self.step()
        for work in works:
            self._measure_warm(work)
        self._end_brokers()

    def _measure_warm(self, work: Work) -> None:
        def measure(broker: B) -> None:
            self.results.add(broker.system, work.name, work.measure(self._make_ready(broker)))

        self.say(f"{work.name}: preparing")
        able = [
            broker
            for broker in self.brokers
            if self._attempt(work.name, broker, lambda b: work.prepare(self._make_ready(b)))
        ]
        self._in_rounds(work.name, work.rounds, able, measure)
        for broker in able:
            self._attempt(work.name, broker, lambda b: work.finish(self._make_ready(b)))

    def _run_fresh(self, work: FreshWork[B]) -> None:
        def measure(broker: B) -> None:
            try:
                self.results.add(broker.system, work.name, work.measure(broker))
            finally:
                broker.kill()

        able = []
        for broker in self._new_brokers(work.name):
            self.say(f"{work.name}: preparing {broker.system}")
            if self._attempt(work.name, broker, work.prepare):
                able.append(broker)
            else:
                broker.kill()
        self._in_rounds(work.name, work.rounds, able, measure)
        self._end_brokers()

    def _new_brokers(self, purpose: str, *, pausable: bool = False) -> list[B]:
        for system in self.systems:
            try:
                make = system.new_pausable_broker if pausable else system.new_broker
                self.brokers.append(make(self.base / f"{system.name}-{purpose}"))
            except BenchError as error:
                self.results.failed(f"{system.name}: {error}")
        return self.brokers

    def _in_rounds(
        self,
        name: str,
        rounds: int,
        brokers: Sequence[B],
        measure: Callable[[B], None],
    ) -> None:
        """Run the rounds. Each takes all brokers, alternately from the front and from the back."""
        failed: list[B] = []
        began = time.monotonic()
        for number in range(rounds):
            if time.monotonic() - began > self.rounds_limit_s:
                self.results.circumstances.append(f"{name}: {number} of {rounds} rounds")
                return
            for broker in brokers[:: -1 if number % 2 else 1]:
                self.say(f"{name}: {broker.system}, round {number + 1} of {rounds}")
                if broker not in failed and not self._attempt(name, broker, measure):
                    failed.append(broker)
                self.step()

    def _attempt(self, name: str, broker: B, action: Callable[[B], object]) -> bool:
        try:
            with time_limit(STEP_LIMIT_S):
                action(broker)
        except FAILURES as error:
            self.results.failed(f"{name}, {broker.system}: {error}")
            return False
        return True

    def _make_ready(self, broker: B) -> Target:
        """Continue or start this broker, warm it up, and pause all others."""
        for other in self.brokers:
            if other is not broker:
                other.pause()
        if broker.running:
            broker.resume()
            time.sleep(self.settle_s)
        else:
            broker.kill()  # of a cluster, some nodes may have ended and others not
            broker.start()
            self.warm_up(broker.target, self.scale)
        return broker.target

    def _end_brokers(self) -> None:
        for broker in self.brokers:
            broker.kill()
            if not self.keep:
                shutil.rmtree(broker.directory, ignore_errors=True)
        self.brokers.clear()
