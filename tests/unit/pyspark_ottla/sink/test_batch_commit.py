"""A driver that ends at any step of a commit, and others that go on, with a real broker.

Tasks and drivers are played by the test: each `task` writes under a transaction as a task of Spark
does, and `commit_batch` is what Spark calls on the driver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from uuid import uuid4

import pyarrow
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.client.cluster import Client
from ottla.client.settings import ClientSettings
from ottla.client.transactions.transaction import begin, end
from ottla.testing import Cluster
from pyspark_ottla.options.sink_options import SinkSettings
from pyspark_ottla.sink import producer_pool
from pyspark_ottla.sink.batch_commit import Prepared, abort_batch, commit_batch, commit_once
from pyspark_ottla.sink.decisions import (
    Decision,
    DecisionError,
    DecisionLog,
    TaskWrite,
    read_decision,
)
from pyspark_ottla.sink.producer_pool import producer_for
from pyspark_ottla.sink.task_identity import WriteIdentity
from pyspark_ottla.sink.task_transaction import TransactionLost

TIMEOUT_S = 60
PARTITIONS = 2


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Cluster(memory=True) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(scope="module", autouse=True)
def no_idle_producers() -> Iterator[None]:
    """Close the producers that the pool keeps for further tasks."""
    yield
    while producer_pool._idle:
        producer_pool._idle.popitem()[1].close()


class Sink:
    """A query that writes to a topic of its own."""

    def __init__(self, servers: str, name: str | None = None) -> None:
        unique = uuid4().hex[:12]
        self.topic, self.servers = f"t-{unique}", servers
        self.name = f"q-{unique}" if name is None else name
        self.settings = SinkSettings(ClientSettings(servers), topic=self.topic, exactly_once=True)
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])[self.topic].result(TIMEOUT_S)

    def batch(self, number: int) -> WriteIdentity:
        return WriteIdentity(self.name, number)

    def task(self, number: int, slot: int, attempt: int = 0, rows: int = 10) -> Prepared | None:
        """Write the rows of a task, unless they are written already."""
        batch = self.batch(number)
        with producer_for(self.settings, batch.task_id(slot, attempt)) as producer:
            decision = read_decision(producer.client, batch)
            if decision is not None and not decision.is_left_to(number, slot):
                return None
            values = [f"{number}-{slot}-{row}".encode() for row in range(rows)]
            producer.add(pyarrow.record_batch({"key": values, "value": values}))
            producer.flush()
            transaction = producer.transaction
            assert transaction is not None
            write = TaskWrite(slot, attempt, *transaction.producer[1:])
            return Prepared(write, sorted(transaction.partitions), transaction.began_ms)

    def tasks(self, number: int, slots: int = 3) -> list[Prepared]:
        found = [self.task(number, slot) for slot in range(slots)]
        return [each for each in found if each is not None]

    def commit(self, number: int, prepared: list[Prepared]) -> None:
        commit_batch(self.settings, self.batch(number), prepared)

    def client(self) -> Client:
        return self.settings.client.connect()

    def committed(self) -> Counter[str]:
        """Return the values that a consumer sees which reads committed records only."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "reading",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        places = [TopicPartition(self.topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)]
        consumer.assign(places)
        found: Counter[str] = Counter()
        ended = 0
        while ended < PARTITIONS:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, "open transactions hide what is committed"
            if message.error() is not None:
                ended += 1
            else:
                found[(message.value() or b"").decode()] += 1
        consumer.close()
        return found


@pytest.fixture
def sink(servers: str) -> Sink:
    return Sink(servers)


def wanted(*batches: int, slots: int = 3, rows: int = 10) -> Counter[str]:
    return Counter(
        f"{number}-{slot}-{row}"
        for number in batches
        for slot in range(slots)
        for row in range(rows)
    )


def test_batches_are_visible_when_they_are_committed(sink: Sink) -> None:
    prepared = sink.tasks(0)
    sink.commit(0, prepared)
    assert sink.committed() == wanted(0)
    sink.commit(1, sink.tasks(1))
    assert sink.committed() == wanted(0, 1)


def test_a_batch_that_is_repeated_before_the_decision(sink: Sink) -> None:
    sink.tasks(0)  # the driver died here
    sink.commit(0, sink.tasks(0))
    assert sink.committed() == wanted(0)


def test_a_driver_that_died_after_the_decision(sink: Sink) -> None:
    prepared = sink.tasks(0)
    with sink.client() as client:
        log = DecisionLog(client, sink.batch(0))
        decision = Decision(0, tuple(each.write for each in prepared))
        log.write(decision, prepared[0].partitions)
        end(client, prepared[1].write.producer(sink.batch(0)), commit=True)  # and died here
    assert sink.tasks(0) == []
    sink.commit(0, [])
    assert sink.committed() == wanted(0)
    sink.commit(1, sink.tasks(1))
    assert sink.committed() == wanted(0, 1)


def test_a_driver_that_died_after_the_commit(sink: Sink) -> None:
    sink.commit(0, sink.tasks(0))
    assert sink.tasks(0) == []
    sink.commit(0, [])
    assert sink.committed() == wanted(0)


def test_a_driver_that_was_replaced_commits_nothing(sink: Sink) -> None:
    old = sink.tasks(0)  # this driver pauses here
    new = sink.tasks(0)
    sink.commit(0, new)
    sink.commit(0, old)  # the batch is decided, and it is not his
    assert sink.committed() == wanted(0)


def test_a_driver_that_was_replaced_while_it_decides(sink: Sink) -> None:
    prepared = sink.tasks(0)
    with sink.client() as client:
        old = DecisionLog(client, sink.batch(0))
        sink.commit(0, sink.tasks(0))
        with pytest.raises(Exception, match=r"FENCED|EPOCH"):
            old.write(Decision(0, (prepared[0].write,)), prepared[0].partitions)
    assert sink.committed() == wanted(0)


def test_transactions_that_were_aborted_after_the_decision_are_written_again(sink: Sink) -> None:
    prepared = sink.tasks(0)
    batch = sink.batch(0)
    with sink.client() as client:
        decision = Decision(0, tuple(each.write for each in prepared))
        DecisionLog(client, batch).write(decision, prepared[0].partitions)
        end(client, prepared[0].write.producer(batch), commit=True)
        begin(client, batch.task_id(1, 0), 60_000)  # what the timeout of a transaction does
    assert sink.tasks(0) == []
    with pytest.raises(TransactionLost, match="start the query again"):
        sink.commit(0, [])
    again = sink.tasks(0)
    assert [each.write.slot for each in again] == [1]
    sink.commit(0, again)
    assert sink.committed() == wanted(0)
    sink.commit(1, sink.tasks(1))
    assert sink.committed() == wanted(0, 1)


def test_attempts_that_failed_hold_no_reader_up(sink: Sink) -> None:
    prepared = sink.tasks(0, slots=2)
    sink.task(0, 2, attempt=0)  # its executor was lost
    last = sink.task(0, 2, attempt=1)
    assert last is not None
    sink.commit(0, [*prepared, last])
    assert sink.committed() == wanted(0)


def test_a_speculative_attempt_that_was_killed_holds_no_reader_up(sink: Sink) -> None:
    prepared = sink.tasks(0)
    sink.task(0, 2, attempt=1)  # the first attempt was faster
    sink.commit(0, prepared)
    sink.commit(1, sink.tasks(1))
    assert sink.committed() == wanted(0, 1)


def test_a_second_attempt_of_a_killed_driver_holds_no_reader_up(sink: Sink) -> None:
    sink.task(0, 2, attempt=1)  # nobody uses its transactional id again
    sink.commit(0, sink.tasks(0))
    assert sink.committed() == wanted(0)


def test_a_speculative_attempt_of_a_write_that_is_never_repeated(sink: Sink) -> None:
    sink.task(0, 0, attempt=1)
    commit_once(sink.settings, sink.batch(0), sink.tasks(0))
    assert sink.committed() == wanted(0)


def test_an_aborted_batch_shows_nothing(sink: Sink) -> None:
    prepared = sink.tasks(0)
    abort_batch(sink.settings, sink.batch(0), prepared)
    assert sink.committed() == Counter()


def test_tasks_that_were_killed_hold_no_reader_up(sink: Sink) -> None:
    sink.task(0, 1, attempt=2)  # nobody knows of it: the task was killed with the job
    abort_batch(sink.settings, sink.batch(0), [])
    assert sink.committed() == Counter()


def test_a_write_whose_name_begins_with_another_one_is_left_alone(sink: Sink) -> None:
    other = Sink(sink.servers, f"{sink.name}-2")
    prepared = other.tasks(0)
    sink.commit(0, sink.tasks(0))
    other.commit(0, prepared)
    assert other.committed() == wanted(0)


def test_a_checkpoint_that_is_older_than_the_topic_is_refused(sink: Sink) -> None:
    for number in range(2):
        sink.commit(number, sink.tasks(number))
    with pytest.raises(DecisionError, match=r"batch 1 of .* is written already"):
        sink.task(0, 0)
    with pytest.raises(DecisionError, match=r"batch 1 of .* is written already"):
        sink.commit(0, [])


def test_a_task_that_fails_aborts_its_transaction(sink: Sink) -> None:
    def fail() -> None:
        with producer_for(sink.settings, sink.batch(0).task_id(0, 0)) as producer:
            values = [b"x"]
            producer.add(pyarrow.record_batch({"key": values, "value": values}))
            producer.flush()
            raise ValueError("a row is bad")

    with pytest.raises(ValueError, match="a row is bad"):
        fail()
    assert sink.committed() == Counter()


def test_a_write_that_is_never_repeated(sink: Sink) -> None:
    commit_once(sink.settings, sink.batch(0), sink.tasks(0))
    assert sink.committed() == wanted(0)
    with sink.client() as client:
        assert read_decision(client, sink.batch(0)) is None


def test_a_write_whose_transactions_are_too_old_is_refused(sink: Sink) -> None:
    prepared = sink.tasks(0)
    prepared[1].began_ms -= sink.settings.transaction_timeout_ms
    with pytest.raises(TransactionLost, match="longer than"):
        sink.commit(0, prepared)
    abort_batch(sink.settings, sink.batch(0), prepared)
    assert sink.committed() == Counter()
