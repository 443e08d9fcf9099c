"""The reader of a stream as Spark's driver calls it, with a real broker and no session."""

from __future__ import annotations

import json
import logging
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

pytest.importorskip("pyspark", reason="needs ottla[spark]")

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as RdPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from ottla.client.address import parse_addresses
from ottla.client.cluster import Client
from ottla.client.errors import ClientError
from ottla.client.groups.offsets import fetch_offsets
from ottla.model.ids import TopicPartition
from ottla.testing import Cluster
from pyspark_ottla.errors import DataLoss, MissingTopics
from pyspark_ottla.options.source_options import stream_options
from pyspark_ottla.source import log_sizes, query_name
from pyspark_ottla.source.query_name import name_in_description, send_name
from pyspark_ottla.source.stream_reader import StreamReader, StreamTask
from pyspark_ottla.source.task_plan import ReadTask

ALL = ReadAllAvailable()
TIMEOUT_S = 10
FIRST_MS = 1_700_000_000_000
Offsets = dict[str, dict[str, int]]


class Kafka:
    """A broker, with methods that tests need."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.admin = AdminClient({"bootstrap.servers": servers})

    def create(self, partitions: int = 1, name: str | None = None) -> str:
        name = name or f"t-{uuid4().hex[:8]}"
        topic = NewTopic(name, partitions, 1, config={"retention.ms": "-1"})
        self.admin.create_topics([topic])[name].result(TIMEOUT_S)
        return name

    def grow(self, name: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(name, partitions)])[name].result(TIMEOUT_S)

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(TIMEOUT_S)

    def delete_records(self, name: str, before: int) -> None:
        wanted = RdPartition(name, 0, before)
        self.admin.delete_records([wanted])[wanted].result(TIMEOUT_S)

    def produce(self, name: str, n: int, partition: int = 0, timestamp_ms: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 1})
        for number in range(n):
            producer.produce(name, b"v%d" % number, partition=partition, timestamp=timestamp_ms)
        assert producer.flush(TIMEOUT_S) == 0

    def committed(self, group: str) -> dict[TopicPartition, int]:
        with Client(parse_addresses(self.servers)) as client:
            return {p: found.offset for p, found in fetch_offsets(client, group).items()}


@pytest.fixture
def kafka(bootstrap_servers: str) -> Kafka:
    return Kafka(bootstrap_servers)


MakeReader = Callable[..., StreamReader]


@pytest.fixture
def reader() -> Iterator[MakeReader]:
    """Return `reader(servers, **options)`, which makes a new reader as a new process would."""
    made: list[StreamReader] = []

    def make(servers: str, **options: str) -> StreamReader:
        usual = {"groupId": "none", "fetchOffset.retryIntervalMs": "10"}
        given = usual | options | {"kafka.bootstrap.servers": servers}
        made.append(StreamReader(stream_options(given)))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def ranges(found: StreamReader, start: Offsets, end: Offsets) -> list[tuple[str, int, int, int]]:
    """Return topic, partition, start and end of the ranges of a batch."""
    return sorted(
        (piece.topic, piece.partition, piece.start, piece.end)
        for task in found.partitions(start, end)
        for piece in task.ranges  # type: ignore[attr-defined]
    )


def eventually(action: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not action():
        assert time.monotonic() < deadline, what
        threading.Event().wait(0.01)


def test_a_new_stream_starts_at_the_end_or_where_it_is_told(
    kafka: Kafka, reader: MakeReader
) -> None:
    name = kafka.create(2)
    kafka.produce(name, 3, 0, FIRST_MS)
    kafka.produce(name, 4, 1, FIRST_MS + 5)

    def initial(**options: str) -> Offsets:
        return reader(kafka.servers, subscribe=name, **options).initialOffset()

    assert initial() == {name: {"0": 3, "1": 4}}
    assert initial(startingOffsets="earliest") == {name: {"0": 0, "1": 0}}
    given = json.dumps({name: {"0": 2, "1": -1}})
    assert initial(startingOffsets=given) == {name: {"0": 2, "1": 4}}
    late = {"startingTimestamp": str(FIRST_MS + 1), "startingOffsetsByTimestampStrategy": "latest"}
    assert initial(**late) == {name: {"0": 3, "1": 0}}


def test_a_batch_reaches_to_the_ends_of_the_logs(kafka: Kafka, reader: MakeReader) -> None:
    name = kafka.create(2)
    kafka.produce(name, 5, 0)
    found = reader(kafka.servers, subscribe=name, startingOffsets="earliest")
    start = found.initialOffset()
    end = found.latestOffset(start, found.getDefaultReadLimit())
    assert end == found.reportLatestOffset() == {name: {"0": 5, "1": 0}}
    assert ranges(found, start, end) == [(name, 0, 0, 5)]
    assert found.latestOffset(end, ALL) is end
    kafka.produce(name, 2, 1)
    assert found.latestOffset(end, ALL) == {name: {"0": 5, "1": 2}}


def test_a_crash_in_the_first_batch_of_a_stream_from_the_end_loses_nothing(
    kafka: Kafka, reader: MakeReader
) -> None:
    name = kafka.create()
    kafka.produce(name, 5)
    first = reader(kafka.servers, subscribe=name)
    start = first.initialOffset()
    kafka.produce(name, 3)
    end = first.latestOffset(start, ALL)  # Spark writes this down, and the driver dies
    assert start == end == first.initialOffset()
    kafka.produce(name, 2)
    again = reader(kafka.servers, subscribe=name)
    assert ranges(again, again.initialOffset(), end) == []
    following = again.latestOffset(end, ALL)
    assert ranges(again, end, following) == [(name, 0, 5, 10)]


def test_a_batch_is_planned_the_same_after_a_restart(kafka: Kafka, reader: MakeReader) -> None:
    name = kafka.create(2)
    kafka.produce(name, 10, 0)
    options = {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "4"}
    first = reader(kafka.servers, **options)
    start = first.initialOffset()
    end = first.latestOffset(start, ReadMaxRows(4))
    assert end == {name: {"0": 4, "1": 0}}
    planned = ranges(first, start, end)
    kafka.produce(name, 10, 1)
    again = reader(kafka.servers, **options)
    assert ranges(again, again.initialOffset(), end) == planned == [(name, 0, 0, 4)]
    assert again.latestOffset(end, ReadMaxRows(4)) == {name: {"0": 5, "1": 2}}


def test_a_maximum_is_shared_and_ignored_when_spark_wants_everything(
    kafka: Kafka, reader: MakeReader
) -> None:
    name = kafka.create(2)
    kafka.produce(name, 90, 0)
    kafka.produce(name, 10, 1)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
    found = reader(kafka.servers, subscribe=name, **options)
    assert found.getDefaultReadLimit() == ReadMaxRows(20)
    start = found.initialOffset()
    assert found.latestOffset(start, ReadMaxRows(20)) == {name: {"0": 18, "1": 2}}
    assert found.latestOffset(start, ALL) == {name: {"0": 90, "1": 10}}


def test_a_minimum_delays_a_batch(kafka: Kafka, reader: MakeReader) -> None:
    name = kafka.create()
    options = {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "1h"}
    found = reader(kafka.servers, subscribe=name, **options)
    limit = found.getDefaultReadLimit()
    assert limit == ReadMinRows(5)
    start = found.latestOffset(found.initialOffset(), limit)
    kafka.produce(name, 4)
    assert found.latestOffset(start, limit) is start
    kafka.produce(name, 1)
    assert found.latestOffset(start, limit) == {name: {"0": 5}}


def test_a_delayed_batch_comes_when_the_delay_is_over(kafka: Kafka, reader: MakeReader) -> None:
    name = kafka.create()
    options = {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "50ms"}
    found = reader(kafka.servers, subscribe=name, **options)
    start = found.latestOffset(found.initialOffset(), found.getDefaultReadLimit())
    kafka.produce(name, 1)
    limit = found.getDefaultReadLimit()
    eventually(lambda: found.latestOffset(start, limit) == {name: {"0": 1}}, "no batch came")


def test_available_now_reads_what_is_there_and_ends(kafka: Kafka, reader: MakeReader) -> None:
    name = kafka.create()
    kafka.produce(name, 10)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "6"}
    found = reader(kafka.servers, subscribe=name, minOffsetsPerTrigger="6", **options)
    found.prepareForTriggerAvailableNow()
    limit = found.getDefaultReadLimit()
    first = found.latestOffset(found.initialOffset(), limit)
    kafka.produce(name, 10)
    kafka.grow(name, 2)
    second = found.latestOffset(first, limit)
    assert (first, second) == ({name: {"0": 6}}, {name: {"0": 10}})
    assert found.latestOffset(second, limit) == second


def test_new_partitions_are_read_from_their_start(kafka: Kafka, reader: MakeReader) -> None:
    name = kafka.create()
    found = reader(kafka.servers, subscribe=name)
    start = found.latestOffset(found.initialOffset(), ALL)
    kafka.grow(name, 2)
    kafka.produce(name, 3, 1)
    end = found.latestOffset(start, ALL)
    assert ranges(found, start, end) == [(name, 1, 0, 3)]
    again = reader(kafka.servers, subscribe=name)
    assert ranges(again, start, end) == [(name, 1, 0, 3)]


def test_new_topics_of_a_pattern_are_read_from_their_start(
    kafka: Kafka, reader: MakeReader
) -> None:
    prefix = uuid4().hex[:8]
    found = reader(kafka.servers, subscribePattern=f"^{prefix}-.*")
    start = found.latestOffset(found.initialOffset(), ALL)
    assert start == {}
    assert found.reportLatestOffset() is None
    name = kafka.create(1, f"{prefix}-a")
    kafka.create(1, f"other-{prefix}-a")
    kafka.produce(name, 2)
    end = found.latestOffset(start, ALL)
    assert ranges(found, start, end) == [(name, 0, 0, 2)]


def test_a_pattern_leaves_internal_topics_alone(kafka: Kafka, reader: MakeReader) -> None:
    name = kafka.create()
    kafka.committed("a group, so that the topic of offsets is there")
    found = reader(kafka.servers, subscribePattern=f"{name}|__consumer_offsets")
    assert found.initialOffset() == {name: {"0": 0}}
    asked = json.dumps({"__consumer_offsets": [0]})
    assert reader(kafka.servers, assign=asked).initialOffset().keys() == {"__consumer_offsets"}


def test_a_new_partition_that_lost_records_already_is_a_loss(
    kafka: Kafka, reader: MakeReader
) -> None:
    prefix = uuid4().hex[:8]
    found = reader(kafka.servers, subscribePattern=f"{prefix}.*")
    start = found.initialOffset()
    name = kafka.create(1, f"{prefix}-a")
    kafka.produce(name, 5)
    kafka.delete_records(name, 3)
    with pytest.raises(DataLoss, match=r"-a-0: 3 records \(offsets 0 to 2\) are lost: retention"):
        found.latestOffset(start, ALL)
    lenient = reader(kafka.servers, subscribePattern=f"{prefix}.*", failOnDataLoss="false")
    end = lenient.latestOffset(start, ALL)
    assert ranges(lenient, start, end) == [(name, 0, 3, 5)]


def test_a_deleted_topic_is_a_loss_with_what_was_still_to_read(
    kafka: Kafka, reader: MakeReader
) -> None:
    name, other = kafka.create(), kafka.create()
    topics = f"{name},{other}"
    strict = reader(kafka.servers, subscribe=topics, startingOffsets="earliest")
    lenient = reader(
        kafka.servers, subscribe=topics, startingOffsets="earliest", failOnDataLoss="false"
    )
    kafka.produce(name, 7)
    start = {name: {"0": 3}, other: {"0": 0}}
    for found in (strict, lenient):
        assert found.latestOffset(start, ALL) == {name: {"0": 7}, other: {"0": 0}}
    kafka.delete(name)
    words = rf"{name}-0: 4 records \(offsets 3 to 6\) are lost: the topic was deleted"
    with pytest.raises(DataLoss, match=words):
        strict.latestOffset(start, ALL)
    assert lenient.latestOffset(start, ALL) == {other: {"0": 0}}


def test_a_recreated_topic_is_a_loss_and_then_read_from_its_start(
    kafka: Kafka, reader: MakeReader
) -> None:
    name = kafka.create()
    kafka.produce(name, 4)
    strict = reader(kafka.servers, subscribe=name)
    lenient = reader(kafka.servers, subscribe=name, failOnDataLoss="false")
    start = strict.initialOffset()
    for found in (strict, lenient):
        assert found.latestOffset(start, ALL) == start
    kafka.delete(name)
    kafka.create(1, name)
    kafka.produce(name, 9)  # more than there were: only the topic's id tells
    with pytest.raises(DataLoss, match="the topic was deleted and created again"):
        strict.latestOffset(start, ALL)
    end = lenient.latestOffset(start, ALL)
    assert ranges(lenient, start, end) == []
    following = lenient.latestOffset(end, ALL)
    assert ranges(lenient, end, following) == [(name, 0, 0, 9)]


def test_a_recreated_topic_is_not_overlooked_while_a_minimum_is_waited_for(
    kafka: Kafka, reader: MakeReader
) -> None:
    name = kafka.create()
    kafka.produce(name, 4)
    options = {"minOffsetsPerTrigger": "100", "failOnDataLoss": "false"}
    found = reader(kafka.servers, subscribe=name, **options)
    start = found.latestOffset(found.initialOffset(), ReadMinRows(100))
    kafka.delete(name)
    kafka.create(1, name)
    kafka.produce(name, 9)
    assert found.latestOffset(start, ReadMinRows(100)) == {name: {"0": 0}}


def test_a_log_that_ends_before_the_checkpoint_is_a_loss(kafka: Kafka, reader: MakeReader) -> None:
    name = kafka.create()
    kafka.produce(name, 2)
    start = {name: {"0": 5}}
    with pytest.raises(DataLoss, match=r"3 records \(offsets 2 to 4\) are lost: the log ends"):
        reader(kafka.servers, subscribe=name).latestOffset(start, ALL)
    lenient = reader(kafka.servers, subscribe=name, failOnDataLoss="false")
    end = lenient.latestOffset(start, ALL)
    assert end == {name: {"0": 2}}
    assert ranges(lenient, start, end) == []


def test_a_topic_that_is_not_there_at_first_is_named(kafka: Kafka, reader: MakeReader) -> None:
    with pytest.raises(MissingTopics, match="there is no nothing-like-it"):
        reader(kafka.servers, subscribe="nothing-like-it").initialOffset()


def test_the_broker_may_restart_between_batches(
    start_cluster: Callable[..., Cluster], reader: MakeReader
) -> None:
    cluster = start_cluster()
    kafka = Kafka(cluster.bootstrap_servers)
    name = kafka.create()
    found = reader(kafka.servers, subscribe=name)
    start = found.latestOffset(found.initialOffset(), ALL)
    cluster.restart()
    kafka.produce(name, 3)
    assert found.latestOffset(start, ALL) == {name: {"0": 3}}


def test_brokers_that_are_gone_are_an_error_in_time(
    start_cluster: Callable[..., Cluster], reader: MakeReader
) -> None:
    cluster = start_cluster()
    name = Kafka(cluster.bootstrap_servers).create()
    timeout = {"kafka.request.timeout.ms": "500"}
    found = reader(cluster.bootstrap_servers, subscribe=name, **timeout)
    start = found.initialOffset()
    cluster.stop()
    begun = time.monotonic()
    with pytest.raises(ClientError, match=r"no broker answers|took longer"):
        found.latestOffset(start, ALL)
    assert time.monotonic() - begun < TIMEOUT_S


def test_batches_and_tasks_are_limited_by_the_sizes_of_logs(
    kafka: Kafka, reader: MakeReader
) -> None:
    name = kafka.create(2)
    producer = Producer({"bootstrap.servers": kafka.servers, "batch.num.messages": 1})
    for number in range(40):
        producer.produce(name, b"x" * 10_000 if number % 2 else b"y", partition=number % 2)
    assert producer.flush(TIMEOUT_S) == 0
    limits = {"maxBytesPerTrigger": "100000", "maxBytesPerPartition": "31000"}
    stream = reader(kafka.servers, subscribe=name, startingOffsets="earliest", **limits)
    start, batches, tasks = stream.initialOffset(), [], []
    while (end := stream.latestOffset(start, stream.getDefaultReadLimit())) != start:
        batches.append(end[name]["1"] - start[name]["1"])
        for task in stream.partitions(start, end):
            assert isinstance(task, ReadTask)
            tasks.append(sum(r.end - r.start for r in task.ranges if r.partition == 1))
        start = end
    assert start == {name: {"0": 20, "1": 20}}
    assert (max(batches), sum(batches)) == (9, 20)
    assert (max(tasks), sum(tasks)) == (3, 20)


def test_unknown_sizes_of_logs_are_asked_for_once_and_limit_nothing(
    kafka: Kafka, reader: MakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def refuse(client: Client, leaders: object) -> dict[TopicPartition, int]:
        asked.append(leaders)
        raise ClientError("not allowed")

    monkeypatch.setattr(log_sizes, "log_sizes", refuse)
    name = kafka.create()
    kafka.produce(name, 20)
    limits = {"maxBytesPerTrigger": "1", "maxBytesPerPartition": "1"}
    stream = reader(kafka.servers, subscribe=name, startingOffsets="earliest", **limits)
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert end == {name: {"0": 20}}
    assert ranges(stream, start, end) == [(name, 0, 0, 20)]
    assert len(asked) == 1


def test_finished_offsets_are_committed_to_the_group(kafka: Kafka, reader: MakeReader) -> None:
    name, group = kafka.create(2), f"g-{uuid4().hex[:8]}"
    kafka.produce(name, 5)
    found = reader(kafka.servers, subscribe=name, groupId=group, startingOffsets="earliest")
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    start = found.initialOffset()
    end = found.latestOffset(start, ALL)
    eventually(lambda: kafka.committed(group) == {first: 0, second: 0}, "nothing was committed")
    found.latestOffset(end, ALL)
    eventually(lambda: kafka.committed(group) == {first: 5, second: 0}, "5 was not committed")


def test_the_last_commit_of_available_now_is_waited_for(kafka: Kafka, reader: MakeReader) -> None:
    name, group = kafka.create(), f"g-{uuid4().hex[:8]}"
    kafka.produce(name, 5)
    found = reader(kafka.servers, subscribe=name, groupId=group, startingOffsets="earliest")
    found.prepareForTriggerAvailableNow()
    end = found.latestOffset(found.initialOffset(), ALL)
    assert found.latestOffset(end, ALL) == end
    assert kafka.committed(group) == {TopicPartition(name, 0): 5}


def test_a_group_with_members_is_a_warning(
    kafka: Kafka, reader: MakeReader, caplog: pytest.LogCaptureFixture
) -> None:
    name, group = kafka.create(), f"g-{uuid4().hex[:8]}"
    settings = {"bootstrap.servers": kafka.servers, "group.id": group}
    consumer = Consumer(settings | {"auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([name])
        eventually(lambda: bool(consumer.poll(0.1) or consumer.assignment()), "not assigned")
        found = reader(kafka.servers, subscribe=name, groupId=group)
        with caplog.at_level(logging.WARNING):
            start = found.initialOffset()
            found.latestOffset(start, ALL)
            eventually(lambda: "has members now" in caplog.text, "no warning")
            kafka.produce(name, 1)
            assert found.latestOffset(start, ALL) == {name: {"0": 1}}
    finally:
        consumer.close()


def test_a_task_tells_the_name_of_the_query(
    kafka: Kafka, reader: MakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, query = kafka.create(), f"q-{uuid4().hex[:8]}"
    kafka.produce(name, 5)
    named = stream_options(
        {"kafka.bootstrap.servers": kafka.servers, "subscribe": name, "startingOffsets": "earliest"}
    )
    found = StreamReader(named)
    try:
        start = found.initialOffset()
        end = found.latestOffset(start, ALL)
        (task,) = found.partitions(start, end)
        assert isinstance(task, StreamTask)
        assert task.name_request is not None
        monkeypatch.setattr(query_name, "current_query", lambda: "an impostor")
        send_name(task.name_request._replace(token="guessed"))
        monkeypatch.setattr(query_name, "current_query", lambda: query)
        send_name(pickle.loads(pickle.dumps(task)).name_request)
        found.latestOffset(end, ALL)
        eventually(
            lambda: kafka.committed(f"spark-{query}") == {TopicPartition(name, 0): 5}, "no commit"
        )
        assert kafka.committed("spark-an impostor") == {}
        (later,) = found.partitions(start, end)
        assert not isinstance(later, StreamTask)
    finally:
        found.stop()


def test_a_driver_that_is_never_told_stops_asking_and_warns(
    kafka: Kafka, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_name, "current_query", lambda: "q")
    send_name(query_name.NameRequest("127.0.0.1", 1, "token"))  # nobody listens there
    name = kafka.create()
    kafka.produce(name, 1)
    found = StreamReader(
        stream_options({"kafka.bootstrap.servers": kafka.servers, "subscribe": name})
    )
    start, end = {name: {"0": 0}}, {name: {"0": 1}}
    with caplog.at_level(logging.WARNING):
        asked = [isinstance(found.partitions(start, end)[0], StreamTask) for _ in range(5)]
    found.stop()
    assert asked == [True, True, True, False, False]
    assert caplog.text.count("set the option groupId to a group") == 1


@pytest.mark.parametrize(
    ("description", "name"),
    [
        ("orders\nid = 12\nrunId = 34\nbatch = 0", "orders"),
        ("\nid = 12\nrunId = 34\nbatch = 0", "12"),
        ("somebody's own words", "12"),
        ("words\nid = 99\nmore", "12"),
        (None, "12"),
    ],
)
def test_the_name_is_in_the_description_of_the_job(description: str | None, name: str) -> None:
    assert name_in_description(description, "12") == name


def test_what_travels_to_executors_is_plain_data(kafka: Kafka, reader: MakeReader) -> None:
    found = reader(kafka.servers, subscribe="t", groupId="g")
    assert isinstance(pickle.loads(pickle.dumps(found)), StreamReader)
