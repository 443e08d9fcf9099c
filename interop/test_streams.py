"""Kafka Streams counts words exactly once on Ottla, while brokers and instances of it are killed.

The application groups lines by word, so it has a topic between its two steps and a state store with
a changelog, all written in its transactions. Its output has the counts of each word: 1, 2, 3 and so
on, none missing, none twice, and no two in another order.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from java_programs import WordCounter, compile_source, jars_of

from harness.problem import BenchError
from ottla.testing import Cluster
from tests.harness.deadline import Deadline, eventually
from tests.harness.fault_cluster import NODES, FaultCluster

pytestmark = pytest.mark.timeout(600)
SOURCE, TARGET = "lines", "counts"
PARTITIONS = 2
WORDS = ["river", "mill", "bridge", "boat", "rain", "island", "ferry", "harbour"]
LINES = 300
"""So many lines are written at once."""
TIMEOUT_S = 180
SETTINGS = {
    "transaction.state.log.num.partitions": "5",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    """Return a directory with the compiled application; skip without the jars of Kafka Streams."""
    try:
        jars = jars_of("kafka-streams")
    except BenchError as error:
        pytest.skip(str(error))
    directory = tmp_path / "application"
    directory.mkdir()
    compile_source("WordCount", jars, directory)
    return directory


class Application:
    """Two instances of the application, the lines written so far, and what must come of them."""

    def __init__(self, servers: str, instances: list[WordCounter]) -> None:
        self._servers = servers
        self.instances = instances
        self._choose = random.Random(1)
        self._expected: Counter[str] = Counter()

    def write(self) -> None:
        """Write more lines."""
        producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True})
        for number in range(LINES):
            words = self._choose.choices(WORDS, k=4)
            self._expected.update(words)
            producer.produce(SOURCE, " ".join(words), partition=number % PARTITIONS)
        assert producer.flush(TIMEOUT_S) == 0

    def count_some(self, what: str) -> None:
        """Write lines, and wait until some of them are counted."""
        before = sum(map(len, self.counts().values()))
        self.write()
        eventually(
            lambda: sum(map(len, self.counts().values())) >= before + LINES,
            f"words are counted after: {what}\n{self.instances[0].tail()}",
            TIMEOUT_S,
        )

    def kill_instance(self) -> None:
        self._choose.choice(self.instances).kill()

    def counts(self) -> dict[str, list[int]]:
        """Return the committed counts of each word, in the order of the output."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        for key, value in _read_committed(self._servers):
            found[key].append(value)
        return found

    def check(self) -> None:
        """Compare the output with the lines, when all are counted."""
        eventually(
            lambda: sum(map(len, self.counts().values())) >= self._expected.total(),
            "all words are counted",
            TIMEOUT_S,
        )
        expected = {word: list(range(1, count + 1)) for word, count in self._expected.items()}
        assert self.counts() == expected


def _read_committed(servers: str) -> Iterator[tuple[str, int]]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "socket.timeout.ms": 3_000,
        }
    )
    consumer.assign([TopicPartition(TARGET, n, OFFSET_BEGINNING) for n in range(PARTITIONS)])
    ended: set[int | None] = set()
    deadline = Deadline(TIMEOUT_S)
    try:
        while len(ended) < PARTITIONS:
            assert not deadline.passed, "the end of the output is out of reach"
            for message in consumer.consume(1000, 0.2):
                key, value = message.key(), message.value()
                if message.error():
                    ended.add(message.partition())
                elif key is not None and value is not None:
                    yield key.decode(), int(value)
    finally:
        consumer.close()


@contextmanager
def application(servers: str, classes: Path, instances: int) -> Iterator[Application]:
    """Run instances of the application."""
    with ExitStack() as stack:
        running = [
            stack.enter_context(WordCounter(servers, classes, n, source=SOURCE, target=TARGET))
            for n in range(instances)
        ]
        yield Application(servers, running)


def test_counts_on_three_brokers(tmp_path: Path, classes: Path) -> None:
    with FaultCluster(tmp_path, properties=SETTINGS) as cluster:
        cluster.create_topic(SOURCE, PARTITIONS)
        cluster.create_topic(TARGET, PARTITIONS)
        with application(cluster.bootstrap_servers, classes, 2) as counting:
            counting.count_some("start")
            for n in NODES:
                cluster.kill(n)
                counting.count_some(f"kill broker {n}")
                cluster.start(n)
                counting.write()
                counting.kill_instance()
                counting.count_some("kill an instance")
            cluster.pause(NODES[0])
            counting.write()
            time.sleep(3)  # longer than the session timeout of brokers
            cluster.resume(NODES[0])
            counting.check()


def test_counts_on_one_broker(tmp_path: Path, classes: Path) -> None:
    with Cluster(processes=True, data_dir=tmp_path / "data", properties=SETTINGS) as cluster:
        cluster.create_topic(SOURCE, PARTITIONS)
        cluster.create_topic(TARGET, PARTITIONS)
        with application(cluster.bootstrap_servers, classes, 1) as counting:
            counting.count_some("start")
            for _ in range(2):
                counting.write()
                cluster.kill()
                cluster.start()
                counting.count_some("kill the broker")
                counting.write()
                counting.kill_instance()
                counting.count_some("kill the instance")
            counting.check()
