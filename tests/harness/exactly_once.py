"""Numbered records in an input topic, and the check of copies that were made in transactions.

Each input partition has the values `0:0`, `0:1`, `0:2` and so on: its number, and a number of their
own. Copiers read them, and write them to an output topic in transactions that also commit the
offsets of their group. Whatever happens to brokers and copiers, at any time the committed output
has the input up to the committed offsets: each record once, in order.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)

from tests.harness.deadline import Deadline, eventually

INPUT = 5_000
"""So many records are added to each input partition at once, unless a test says otherwise."""
CALL_TIMEOUT_S = 10
PAUSE_S = 0.1
KEYS = 5
"""The records of a partition have this many keys."""
_SETTINGS = {"socket.timeout.ms": 3_000, "error_cb": lambda error: None, "log_level": 0}


def fill(servers: str, topic: str, partitions: int, numbers: range) -> None:
    """Write numbered records to each partition of the input."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **_SETTINGS})
    for number in numbers:
        for partition in range(partitions):
            value = f"{partition}:{number}"
            producer.produce(topic, value, key=f"{partition}-{number % KEYS}", partition=partition)
        producer.poll(0)
    assert producer.flush(60) == 0


class Copies:
    """What copiers of a group have made of an input topic."""

    def __init__(
        self,
        servers: str,
        *,
        source: str,
        target: str,
        partitions: int,
        group: str,
        at_once: int = INPUT,
    ) -> None:
        self._servers = servers
        self._source = source
        self.target = target
        self.partitions = partitions
        self._places = [TopicPartition(source, index) for index in range(partitions)]
        self._group = group
        self._at_once = at_once
        self._filled = 0
        self._asker = self._consumer()

    def fill(self) -> None:
        """Write input to all partitions."""
        numbers = range(self._filled, self._filled + self._at_once)
        fill(self._servers, self._source, self.partitions, numbers)
        self._filled = numbers.stop

    def count(self) -> int:
        """Return how many records the group has copied, by its committed offsets."""
        return sum(self._committed())

    def await_more(self, count: int, what: str, timeout_s: float = 60) -> None:
        """Wait until more records of each partition are copied."""
        goals = [before + count for before in self._committed()]

        def is_reached() -> bool:
            copied = self._committed()
            if max(copied) + self._at_once // 2 > self._filled:
                self.fill()
            time.sleep(PAUSE_S)
            return all(now >= goal for now, goal in zip(copied, goals, strict=True))

        eventually(is_reached, f"copies of all partitions go on after: {what}", timeout_s)

    def await_all(self, timeout_s: float = 60) -> None:
        """Wait until everything is copied."""

        def is_reached() -> bool:
            time.sleep(PAUSE_S)
            return min(self._committed()) >= self._filled

        what = f"all {self._filled} records of each partition are copied"
        eventually(is_reached, what, timeout_s)

    def _committed(self) -> list[int]:
        """Return the committed offsets. A request to a paused broker is sent again elsewhere."""
        deadline = Deadline(60)
        while True:
            try:
                found = self._asker.committed(self._places, timeout=CALL_TIMEOUT_S)
                return [max(0, each.offset) for each in found]
            except KafkaException:
                if deadline.passed:
                    raise

    def check(self) -> int:
        """Compare the output with the input, and return the number of copies.

        No copier may run any more. A transaction that one left open ends with its timeout; until
        then the end of the output cannot be read.
        """
        copied, values = self._settled()
        for partition, count in enumerate(copied):
            mine = _numbers(values, partition)
            assert mine == list(range(count)), f"partition {partition}: {_difference(mine, count)}"
        assert len(values) == sum(copied)
        return sum(copied)

    def check_keys(self) -> int:
        """Do the same for copies that have the order of the input for each key only."""
        copied, values = self._settled()
        for partition, count in enumerate(copied):
            mine = _numbers(values, partition)
            assert sorted(mine) == list(range(count)), (
                f"partition {partition}: {_difference(sorted(mine), count)}"
            )
            for key in range(KEYS):
                ordered = [number for number in mine if number % KEYS == key]
                assert ordered == sorted(ordered), f"key {partition}-{key} is out of order"
        assert len(values) == sum(copied)
        return sum(copied)

    def _settled(self) -> tuple[list[int], list[bytes]]:
        """Return the committed offsets and the committed output, once nothing is open."""
        eventually(self._is_settled, "no transaction is open in the output", 80)
        copied = self._committed()
        self._asker.close()
        return copied, read_committed(self._servers, self.target, self.partitions)

    def _is_settled(self) -> bool:
        """Return True if readers of committed records can read to the end of the output."""
        return self._ends("read_committed") == self._ends("read_uncommitted")

    def _ends(self, isolation_level: str) -> list[int]:
        consumer = self._consumer(isolation_level)
        try:
            places = [TopicPartition(self.target, index) for index in range(self.partitions)]
            return [consumer.get_watermark_offsets(each, timeout=60)[1] for each in places]
        finally:
            consumer.close()

    def _consumer(self, isolation_level: str = "read_committed") -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": self._group,
                "enable.auto.commit": False,
                "isolation.level": isolation_level,
                **_SETTINGS,
            }
        )


def read_committed(servers: str, topic: str, partitions: int) -> list[bytes]:
    """Return the committed values of a topic, in order within each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            **_SETTINGS,
        }
    )
    values: list[bytes] = []
    ended: set[int | None] = set()
    deadline = Deadline(60)
    try:
        consumer.assign([TopicPartition(topic, i, OFFSET_BEGINNING) for i in range(partitions)])
        while len(ended) < partitions:
            for message in consumer.consume(1000, 0.2):
                if message.error():
                    ended.add(message.partition())
                else:
                    values.append(message.value() or b"")
            assert not deadline.passed, f"the end of {topic} is out of reach"
    finally:
        consumer.close()
    return values


def _numbers(values: Sequence[bytes], partition: int) -> list[int]:
    """Return the numbers of the copies of an input partition, in the order of the output."""
    prefix = b"%d:" % partition
    return [int(value[len(prefix) :]) for value in values if value.startswith(prefix)]


def _difference(found: Sequence[int], count: int) -> str:
    for index, number in enumerate(found):
        if number != index:
            return f"{number} after {list(found[max(0, index - 3) : index])}"
    return f"{len(found)} copies, but offset {count} is committed"
