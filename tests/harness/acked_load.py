"""A load of idempotent writes to all partitions of a topic, and the check of what was acknowledged.

Each partition gets the numbers 0, 1, 2 and so on. Read back, it must have them in this order, none
twice, and each acknowledged one at the offset that was told.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.harness.deadline import Deadline, eventually

_IN_FLIGHT = 70  # of each partition, so that one without a leader does not stop the others


class AckedLoad:
    """Writes from a thread of its own until `finish`."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self._servers = bootstrap_servers
        self._topic = topic
        self.acked: list[dict[int, int | None]] = [{} for _ in range(partitions)]
        """For each partition: the offsets of acknowledged numbers.

        None if librdkafka does not know it, which happens in two ways after a request that got no
        answer: a later batch was acknowledged, and so this one (`rd_kafka_dr_implicit_ack`); or the
        batch was sent again, and the broker refused it as a duplicate, so that it has it
        (DUPLICATE_SEQUENCE_NUMBER in `rd_kafka_handle_idempotent_Produce_error`).
        """
        self._sent = [0] * partitions
        self._errors: list[str] = []
        self._unanswered = [0] * partitions
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "request.timeout.ms": 1_500,
                "socket.timeout.ms": 2_000,
                "delivery.timeout.ms": 120_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "topic.metadata.refresh.interval.ms": 5_000,
                "error_cb": lambda error: None,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, name="acked-load", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for partition, number in enumerate(self._sent):
                if self._unanswered[partition] < _IN_FLIGHT:
                    self._unanswered[partition] += 1
                    self._sent[partition] += 1
                    self._producer.produce(
                        self._topic,
                        b"%d" % number,
                        partition=partition,
                        on_delivery=self._delivered,
                    )
            self._producer.poll(0.002)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        self._unanswered[partition] -= 1
        if error is not None:
            self._errors.append(str(error))
            return
        assert value is not None
        self.acked[partition][int(value)] = offset

    def await_more(
        self,
        count: int,
        what: str,
        timeout_s: float = 60,
        partitions: Collection[int] | None = None,
    ) -> None:
        """Wait until each partition, or each of those named, has `count` more acknowledged."""
        watched = range(len(self.acked)) if partitions is None else partitions
        goals = {each: len(self.acked[each]) + count for each in watched}

        def is_reached() -> bool:
            assert not self._errors, f"{what}: {self._errors[:3]}"
            return all(len(self.acked[each]) >= goal for each, goal in goals.items())

        eventually(is_reached, f"writes to all partitions after: {what}", timeout_s)

    def finish(self) -> None:
        """Stop writing; everything that was sent must be acknowledged."""
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(60)
        assert not self._errors, self._errors[:3]
        assert left == 0, f"{left} writes without an answer"

    def check(self) -> int:
        """Read everything, compare it with what was acknowledged, and return its number."""
        for partition, acked in enumerate(self.acked):
            found = self._read(partition, self._sent[partition])
            numbers = [number for _, number in found]
            assert numbers == list(range(self._sent[partition])), (
                f"partition {partition}: {_first_difference(numbers)}"
            )
            for offset, number in found:
                assert acked[number] in (offset, None), f"partition {partition}: {number}"
        return sum(self._sent)

    def _read(self, partition: int, count: int) -> list[tuple[int, int]]:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "check",
                "enable.auto.commit": False,
                "error_cb": lambda error: None,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(self._topic, partition, 0)])
        found: list[tuple[int, int]] = []
        deadline = Deadline(60)
        try:
            while len(found) < count:
                for message in consumer.consume(1000, 0.2):
                    offset, value = message.offset(), message.value()
                    if not message.error() and offset is not None and value is not None:
                        found.append((offset, int(value)))
                assert not deadline.passed, f"{len(found)} of {count} in partition {partition}"
        finally:
            consumer.close()
        return found


def _first_difference(numbers: Sequence[int]) -> str:
    for index, number in enumerate(numbers):
        if number != index:
            return f"{number} after {numbers[max(0, index - 3) : index]}"
    return f"only {len(numbers)}"
