"""A member of a consumer group that reads and commits while coordinators move."""

from __future__ import annotations

import threading

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, TopicPartition

CALL_TIMEOUT_S = 10


class GroupMember:
    """Reads a topic in a thread, and commits after each piece. Committed offsets never go back."""

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 20_000,
            }
        )
        self._topic = topic
        self._places = [TopicPartition(topic, index) for index in range(partitions)]
        self.seen: set[tuple[int, int]] = set()
        """The partition and offset of each record that was read."""
        self.doubled = 0
        """Records that were read again after the group had moved on."""
        self.committed: dict[int, int] = {}
        self.went_back: list[tuple[int, int, int]] = []
        """Partition, committed offset before, and the lower one after.

        OFFSET_INVALID, the lowest one, stands for a partition without a commit.
        """
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> GroupMember:
        self._consumer.subscribe([self._topic])
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopping = True
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._is_stopping:
            messages = self._consumer.consume(500, 0.3)
            for message in messages:
                partition, offset = message.partition(), message.offset()
                if message.error() is None and partition is not None and offset is not None:
                    self.doubled += (partition, offset) in self.seen
                    self.seen.add((partition, offset))
            if messages:
                self._commit()

    def _commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=False)
            found = self._consumer.committed(self._places, timeout=CALL_TIMEOUT_S)
        except KafkaException:
            return  # the coordinator moves: the next commit has all of it
        for place in found:
            before = self.committed.get(place.partition, OFFSET_INVALID)
            if place.offset < before:
                self.went_back.append((place.partition, before, place.offset))
            self.committed[place.partition] = place.offset
