"""Kills of everything that takes part in a stream from topic to topic, at random moments."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable

import psutil

from tests.harness.deadline import eventually
from tests.harness.exactly_once import Copies
from tests.harness.process import BrokerProcess
from tests.harness.process_tree import kill
from tests.harness.standalone_spark import StandaloneSpark
from tests.harness.topic_stream.handle import TopicStream

STEP = 20
"""So many more copies of each partition show that the stream goes on."""
LONGEST_PAUSE_S = 1.5
CALM = 0.5
"""The share of kills after which the stream may recover before the next one."""
TIMEOUT_S = 240.0


class StreamKills:
    """Kills one process after the other with SIGKILL, and lets the stream go on in between."""

    def __init__(
        self,
        stream: TopicStream,
        copies: Copies,
        broker: BrokerProcess,
        choose: random.Random,
        standalone: StandaloneSpark | None = None,
    ) -> None:
        self._stream = stream
        self._copies = copies
        self._broker = broker
        self._choose = choose
        self._standalone = standalone
        self.done: Counter[str] = Counter()
        """How often what was killed."""

    def victims(self) -> dict[str, Callable[[], None]]:
        """Return what can be killed here, by name."""
        everywhere = {
            "driver": self._stream.kill_driver,
            "driver's Java": self._stream.kill_java,
            "driver, its Java and its workers": self._stream.kill_everything,
            "Python process of the driver": self._kill_python_of_driver,
            "broker": self._kill_broker,
        }
        if self._standalone is None:
            return everywhere
        return everywhere | {
            "executor": self._kill_executor,
            "Python worker of an executor": self._kill_python_of_executor,
            "standalone worker": self._kill_standalone_worker,
        }

    def plan(self, count: int) -> list[str]:
        """Return victims at random, each about as often as the others."""
        names = sorted(self.victims())
        planned: list[str] = []
        while len(planned) < count:
            planned += self._choose.sample(names, len(names))
        return planned[:count]

    def kill(self, name: str) -> None:
        """Kill at a random moment. Wait until the stream goes on, or let the next kill come
        while it recovers from this one."""
        time.sleep(self._choose.uniform(0, LONGEST_PAUSE_S))  # not to wait: to hit anything
        self.victims()[name]()
        self.done[name] += 1
        if self._choose.random() < CALM:
            self.go_on(name)

    def go_on(self, what: str) -> None:
        """Wait until more copies are made."""
        try:
            self._copies.await_more(STEP, what, TIMEOUT_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._stream.tail()}") from None

    def _kill_python_of_driver(self) -> None:
        """Kill a process that plans batches, or in local mode one that reads or writes rows."""
        self._kill_one(self._stream.python_processes, "Python processes of the driver")

    def _kill_python_of_executor(self) -> None:
        assert self._standalone is not None
        self._kill_one(self._standalone.python_workers, "Python workers")

    def _kill_executor(self) -> None:
        assert self._standalone is not None
        self._kill_one(self._standalone.executors, "executors")

    def _kill_standalone_worker(self) -> None:
        """Kill the daemon that starts executors. Its executors notice it and end."""
        assert self._standalone is not None
        executors = eventually(self._standalone.executors, "executors", TIMEOUT_S)
        self._standalone.kill_worker_of(self._choose.choice(executors))
        self._standalone.fill()

    def _kill_broker(self) -> None:
        """Kill the broker, and start it again with its data."""
        self._broker.kill()
        self._broker.start()

    def _kill_one(self, find: Callable[[], list[psutil.Process]], what: str) -> None:
        """Kill one of these processes. Some end by themselves: then kill another."""

        def is_killed() -> bool:
            found = find()
            return bool(found) and kill(self._choose.choice(found))

        eventually(is_killed, what, TIMEOUT_S)
