"""A consumer that reads a topic while it is written, and checks later that nothing changed."""

from __future__ import annotations

import threading

from confluent_kafka import Consumer, TopicPartition


class EarlyReader:
    """Reads all partitions from the beginning, on a thread of its own, until `stop`."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self.seen: list[list[tuple[int, int]]] = [[] for _ in range(partitions)]
        """For each partition: offset and number, in the order in which they were read."""
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "early-reader",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.interval.ms": 1_000,
                "auto.offset.reset": "error",
                "error_cb": lambda error: None,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
        self._thread = threading.Thread(target=self._run, name="early-reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(1000, 0.05):
                offset, value = message.offset(), message.value()
                partition = message.partition()
                if not message.error() and None not in (offset, value, partition):
                    self.seen[partition].append((offset, int(value)))  # type: ignore[index,arg-type]

    def stop(self) -> None:
        """Stop reading."""
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def check(self, acked: list[dict[int, int | None]]) -> None:
        """Compare what was read with what is there in the end."""
        for partition, (seen, numbers) in enumerate(zip(self.seen, acked, strict=True)):
            offsets = [offset for offset, _ in seen]
            assert offsets == sorted(set(offsets)), f"partition {partition} was not read in order"
            for offset, number in seen:
                assert numbers[number] in (offset, None), (
                    f"partition {partition}: {number} was at {offset}"
                )
