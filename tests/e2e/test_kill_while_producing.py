"""SIGKILL under load: what was acknowledged is there, nothing idempotent is there twice.

Four producers write at once, each to a partition of its own, while the broker is killed and
started again. A message carries its producer's number and its own, so what is read back can be
compared with what was sent and with what was acknowledged.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest

from tests.harness.aio import Aio
from tests.harness.confluent import Confluent
from tests.harness.deadline import Deadline
from tests.harness.kafkapython import KafkaPython
from tests.harness.model import EARLIEST, Client
from tests.harness.process import BrokerProcess
from tests.harness.topics import create_topic

TOPIC = "ledger"
ROUNDS = 5
GROUP = 50


class Writer:
    """Writes to one partition until told to stop, and keeps what it was told."""

    def __init__(
        self, client: Client, broker: BrokerProcess, partition: int, *, idempotent: bool
    ) -> None:
        self.name = f"{client.name}, {'idempotent' if idempotent else 'acks=1'}"
        self.partition = partition
        self.idempotent = idempotent
        self.sent = 0
        self.acknowledged: dict[bytes, int] = {}
        self.errors: list[int] = []
        self._client = client
        self._broker = broker
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        with self._client.producer(
            self._broker.bootstrap_servers,
            acks="all" if self.idempotent else 1,
            idempotent=self.idempotent,
            linger_ms=1,
            delivery_timeout_ms=40_000,
        ) as producer:
            while not self._stop.is_set():
                values = [b"%08d" % (self.sent + number) for number in range(GROUP)]
                for value in values:
                    producer.send(TOPIC, value, partition=self.partition)
                self.sent += GROUP
                for value, ack in zip(values, producer.flush(45), strict=True):
                    if ack.error:
                        self.errors.append(ack.error)
                    else:
                        self.acknowledged[value] = ack.offset

    def wait_for(self, more: int, deadline: Deadline) -> None:
        goal = len(self.acknowledged) + more
        while len(self.acknowledged) < goal:
            assert self._thread.is_alive(), f"{self.name} died"
            assert not deadline.passed, (
                f"{self.name} is stuck at {len(self.acknowledged)} of {goal}"
            )
            time.sleep(0.005)

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), f"{self.name} does not end"


def stored(broker: BrokerProcess, partition: int) -> list[bytes]:
    """Return every value of a partition in order; offsets must have no gap and no repetition."""
    values: list[bytes] = []
    with Confluent().consumer(broker.bootstrap_servers) as consumer:
        _, end = consumer.watermarks(TOPIC, partition)
        consumer.assign({(TOPIC, partition): EARLIEST})
        while len(values) < end:
            for message in consumer.take(1):
                assert message.offset == len(values)
                assert message.value is not None
                values.append(message.value)
    return values


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_acknowledged_is_lost_and_nothing_doubled(
    start_broker: Callable[..., BrokerProcess], seed: int
) -> None:
    chance = random.Random(seed)
    broker = start_broker()
    create_topic(broker.bootstrap_servers, TOPIC, 4)
    writers = [
        Writer(Confluent(), broker, 0, idempotent=False),
        Writer(Confluent(), broker, 1, idempotent=True),
        Writer(KafkaPython(), broker, 2, idempotent=True),
        Writer(Aio(), broker, 3, idempotent=True),
    ]
    for writer in writers:
        writer.start()
    try:
        for _ in range(ROUNDS):
            deadline = Deadline(30)
            for writer in writers:
                writer.wait_for(chance.randrange(1, 150), deadline)
            broker.kill()
            broker.start()
        for writer in writers:
            writer.wait_for(100, Deadline(30))
    finally:
        for writer in writers:
            writer.finish()

    for writer in writers:
        check(writer, stored(broker, writer.partition))
    assert broker.stop() == 0
    broker.start()
    assert stored(broker, 0)[-1] >= max(writers[0].acknowledged)


def check(writer: Writer, values: list[bytes]) -> None:
    lost = sorted(set(writer.acknowledged) - set(values))
    assert not lost, f"{writer.name}: {len(lost)} acknowledged messages are gone: {lost[:5]}"
    moved = {
        value: (offset, values[offset])
        for value, offset in writer.acknowledged.items()
        if offset >= 0 and values[offset] != value
    }
    assert not moved, f"{writer.name}: not at the offset it was told: {list(moved.items())[:5]}"
    if writer.idempotent:
        assert not writer.errors, f"{writer.name}: {writer.errors[:5]}"
        assert len(values) == len(set(values)), f"{writer.name}: doubled"
        assert values == sorted(values), f"{writer.name}: out of order"
