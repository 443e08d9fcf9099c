"""A producer under faults that remembers what was acknowledged, and the checks of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

WAIT_S = 90.0


def eventually(is_so: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    """Wait until something is so. Fail if it never is."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, f"waited {timeout_s:.0f} s: {what}"
        time.sleep(0.1)


class Load:
    """Writes numbered records to all partitions of a topic, acks=all and idempotent."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate: int = 400) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "delivery.timeout.ms": 120_000,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 500,
            }
        )
        self._topic, self._partitions, self._rate = topic, partitions, rate
        self.acked: dict[tuple[int, int], bytes] = {}
        """The value at each partition and offset."""
        self.failed: list[KafkaError] = []
        self.sent = 0
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Send no more, and wait for the last acknowledgements. It may be called twice."""
        self._is_stopping = True
        self._thread.join()

    def progress(self, records: int = 300) -> None:
        """Wait until more records are acknowledged."""
        wanted = len(self.acked) + records
        eventually(lambda: len(self.acked) >= wanted, f"{len(self.acked)} of {wanted} records")

    def _run(self) -> None:
        while not self._is_stopping:
            for _ in range(self._rate // 100):
                partition = self.sent % self._partitions
                value = b"%d-" % self.sent + b"x" * (self.sent % 200)
                self._producer.produce(
                    self._topic, value, partition=partition, on_delivery=self._delivered
                )
                self.sent += 1
            self._producer.poll(0.01)
        self._producer.flush(130)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        assert offset is not None
        place = partition, offset
        assert place not in self.acked, f"{place} was acknowledged twice"
        self.acked[place] = value


def create_topic(bootstrap: str, topic: str, assignment: list[list[int]]) -> None:
    """Create a topic with these replicas for each partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, len(assignment), replica_assignment=assignment)
    admin.create_topics([new])[topic].result(30)
    eventually(lambda: isrs(bootstrap, topic) == [set(each) for each in assignment], "the ISR")


def add_password(bootstrap: str) -> None:
    """Give a user a password: Ottla keeps the record for Kafka's nodes."""
    change = UserScramCredentialUpsertion(
        "alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret", b"salt"
    )
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.alter_user_scram_credentials([change])["alice"].result(30)


def brokers(bootstrap: str) -> set[int]:
    """Return the brokers that clients are told of."""
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).brokers)


def isrs(bootstrap: str, topic: str) -> list[set[int]]:
    """Return the ISR of each partition."""
    return [set(each[1]) for each in _partitions(bootstrap, topic)]


def leaders(bootstrap: str, topic: str) -> list[int]:
    """Return the leader of each partition."""
    return [each[0] for each in _partitions(bootstrap, topic)]


def _partitions(bootstrap: str, topic: str) -> list[tuple[int, list[int]]]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.list_topics(topic, timeout=30).topics[topic].partitions
    return [(found[index].leader, found[index].isrs) for index in sorted(found)]


def read_all(bootstrap: str, topic: str, partitions: int) -> dict[tuple[int, int], bytes]:
    """Return all committed records of a topic."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False}
    )
    places = [TopicPartition(topic, index, 0) for index in range(partitions)]
    ends = {p.partition: consumer.get_watermark_offsets(p, timeout=30)[1] for p in places}
    consumer.assign(places)
    found: dict[tuple[int, int], bytes] = {}
    deadline = time.monotonic() + WAIT_S
    while len(found) < sum(ends.values()):
        assert time.monotonic() < deadline, f"read {len(found)} of {ends}"
        for message in consumer.consume(10_000, 0.5):
            assert message.error() is None, message.error()
            found[message.partition(), message.offset()] = message.value()  # type: ignore[index,assignment]
    consumer.close()
    return found


def check_nothing_lost(load: Load, bootstrap: str, topic: str, partitions: int) -> None:
    """Fail unless each acknowledged record is where it was acknowledged, and none is doubled."""
    assert not load.failed, load.failed[0]
    found = read_all(bootstrap, topic, partitions)
    wrong = {place for place, value in load.acked.items() if found.get(place) != value}
    assert not wrong, f"{len(wrong)} acknowledged records are lost, for example {min(wrong)}"
    assert len(set(found.values())) == len(found), "a record is there twice"


def log_bytes(data: Path, topic: str, partition: int) -> bytes:
    """Return the bytes of all segments of a log."""
    files = sorted((data / f"{topic}-{partition}").glob("*.log"))
    return b"".join(path.read_bytes() for path in files)
