"""A producer that sends at a steady rate from a thread, until it is told to stop."""

from __future__ import annotations

import threading
from collections import Counter
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

from tests.harness.confluent import place_of
from tests.harness.member.report import Key


class Load:
    """Records to all partitions of a topic in turn; `ends` are the acknowledged ends."""

    def __init__(
        self, bootstrap_servers: str, topic: str, partitions: int, *, per_second: int = 400
    ) -> None:
        self.topic = topic
        self.failures: list[str] = []
        self._partitions = partitions
        self._pause_s = 1 / per_second
        self._acknowledged: Counter[Key] = Counter()
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 2,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def sent(self) -> int:
        """How many records are acknowledged."""
        return self._acknowledged.total()

    def stop(self) -> dict[Key, int]:
        """Stop; the end of each partition, everything acknowledged."""
        self._stop.set()
        self._thread.join(30)
        left = self._producer.flush(30)
        assert not left, f"{left} records were not acknowledged"
        assert not self.failures, self.failures[:3]
        return dict(self._acknowledged)

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(self._pause_s):
            self._producer.produce(
                self.topic,
                b"%d" % number,
                partition=number % self._partitions,
                on_delivery=self._delivered,
            )
            self._producer.poll(0)
            number += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        topic, partition, offset = place_of(message)
        key = (topic, partition)
        self._acknowledged[key] = max(self._acknowledged[key], offset + 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(30)
