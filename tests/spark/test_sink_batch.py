"""Batch writes of a real session, read back with librdkafka."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from pyspark.errors import AnalysisException, PythonException

from ottla.testing import Cluster
from tests.support.spark_fixtures import MakeTopic, Produce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ottla.testing import Cluster

TIMEOUT_S = 60
READ_TIMEOUT_S = 10
Read = Callable[..., list[Message]]
Write = Callable[..., None]


@pytest.fixture
def read(bootstrap_servers: str) -> Iterator[Read]:
    """Yield `read(topic, count, partitions)`: it returns exactly this many messages."""
    consumers: list[Consumer] = []

    def messages(
        topic: str,
        count: int,
        partitions: int = 1,
        servers: str | None = None,
        *,
        at_least: bool = False,
    ) -> list[Message]:
        consumer = Consumer(
            {"bootstrap.servers": servers or bootstrap_servers, "group.id": "reading"}
        )
        consumers.append(consumer)
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
        found: list[Message] = []
        while len(found) < count:
            more = consumer.consume(count, READ_TIMEOUT_S)
            assert more, f"only {len(found)} of {count}"
            assert [message.error() for message in more] == [None] * len(more)
            found += more
        rest = consumer.consume(count, 1)
        assert at_least or rest == []
        return found + rest

    yield messages
    for consumer in consumers:
        consumer.close()


@pytest.fixture
def write(bootstrap_servers: str) -> Write:
    """Return `write(frame, topic="t", ...)`, which appends with these options."""

    def save(frame: DataFrame, mode: str = "append", **options: str) -> None:
        named = {"kafka.bootstrap.servers": bootstrap_servers} | options
        frame.write.format("ottla").mode(mode).options(**named).save()

    return save


def numbers(spark: SparkSession, count: int, tasks: int = 2) -> DataFrame:
    return spark.range(0, count, 1, tasks).selectExpr("cast(id as string) as value")


def test_all_columns(spark: SparkSession, topic: MakeTopic, write: Write, read: Read) -> None:
    name = topic(3)
    rows = [
        (b"k", "text", [("h", b"1"), ("h", None)], 2, 99),
        (None, "ünï", None, 0, 99),
        (b"", None, [], 1, 99),
    ]
    columns = (
        "key binary, value string, headers array<struct<key:string,value:binary>>,"
        " partition int, offset long"
    )
    write(spark.createDataFrame(rows, columns), topic=name)
    found = {message.partition(): message for message in read(name, 3, 3)}
    assert {p: (m.key(), m.value(), m.headers()) for p, m in found.items()} == {
        2: (b"k", b"text", [("h", b"1"), ("h", None)]),
        0: (None, "ünï".encode(), None),
        1: (b"", None, None),
    }


def test_keys_go_where_librdkafka_puts_them_too(
    spark: SparkSession, topic: MakeTopic, produce: Produce, write: Write, read: Read
) -> None:
    ours, theirs = topic(5), topic(5)
    frame = spark.range(200).selectExpr("concat('k', id) as key", "concat('v', id) as value")
    write(frame, topic=ours)
    produce(theirs, 200, partition=-1, settings={"partitioner": "murmur2_random"})
    placed = [
        {message.value(): message.partition() for message in read(name, 200, 5)}
        for name in (ours, theirs)
    ]
    assert placed[0] == placed[1]


def test_every_codec(spark: SparkSession, topic: MakeTopic, write: Write, read: Read) -> None:
    name = topic(1)
    codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
    for codec in codecs:
        frame = spark.range(2000).selectExpr(f"concat('{codec}-', id) as value")
        write(frame, topic=name, **{"kafka.compression.type": codec})
    found = Counter(message.value() for message in read(name, 10_000))
    assert found == Counter(f"{codec}-{n}".encode() for codec in codecs for n in range(2000))


def test_topics_of_a_column_and_the_option_that_overrides_it(
    spark: SparkSession, topic: MakeTopic, write: Write, read: Read
) -> None:
    first, second, third = topic(), topic(), topic()
    frame = spark.createDataFrame(
        [(first, "a"), (second, "b"), (first, "c")], "topic string, value string"
    )
    write(frame.coalesce(1))
    assert [message.value() for message in read(first, 2)] == [b"a", b"c"]
    assert [message.value() for message in read(second, 1)] == [b"b"]
    write(frame.coalesce(1), topic=third)
    assert [message.value() for message in read(third, 3)] == [b"a", b"b", b"c"]


def test_written_rows_are_read_by_the_source(
    spark: SparkSession, topic: MakeTopic, write: Write, bootstrap_servers: str
) -> None:
    name = topic(4)
    write(numbers(spark, 50_000, tasks=4), topic=name)
    frame = (
        spark.read.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", name)
        .load()
    )
    found = frame.selectExpr("count(*)", "sum(cast(cast(value as string) as long))").first()
    assert found is not None
    assert tuple(found) == (50_000, sum(range(50_000)))


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("id as nothing", {"topic": "t"}, "Required attribute 'value' not found"),
        ("'v' as value", {}, "topic option required when no 'topic' attribute is present"),
        ("id as value", {"topic": "t"}, "value attribute unsupported type bigint"),
        (
            "'v' as value",
            {"topic": "t", "kafka.key.serializer": "x"},
            "kafka.key.serializer cannot",
        ),
        ("'v' as value", {"topic": "t", "kafka.acks": "2"}, "expected all, 1 or 0"),
        (
            "'v' as value",
            {"topic": "t", "kafka.bootstrap.servers": "127.0.0.1:1"},
            "no broker answers",
        ),
    ],
)
def test_refused_when_planned(
    spark: SparkSession, write: Write, columns: str, options: dict[str, str], words: str
) -> None:
    with pytest.raises(AnalysisException, match=words):
        write(spark.range(1).selectExpr(columns), **options)


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("overwrite", "Save mode Overwrite not allowed"),
        ("error", 'cannot be written in the "ErrorIfExists" mode'),
        ("ignore", 'cannot be written in the "Ignore" mode'),
    ],
)
def test_save_modes(spark: SparkSession, write: Write, mode: str, words: str) -> None:
    with pytest.raises(AnalysisException, match=words):
        write(numbers(spark, 1), mode, topic="t")


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("'v' as value, cast(null as string) as topic", {}, "null topic present in the data"),
        ("'v' as value, 7 as partition", {}, "partition 7 of topic .*0 to 0"),
        ("repeat('v',2000) as value", {"kafka.max.request.size": "1000"}, "max.request.size=1000"),
    ],
)
def test_refused_when_written(
    spark: SparkSession,
    topic: MakeTopic,
    write: Write,
    columns: str,
    options: dict[str, str],
    words: str,
) -> None:
    named = options if "topic" in columns else options | {"topic": topic()}
    with pytest.raises(PythonException, match=words):
        write(spark.range(1).selectExpr(*columns.split(", ")), **named)


def test_a_broker_restarted_in_the_middle_loses_and_doubles_nothing(
    spark: SparkSession,
    start_cluster: Callable[..., Cluster],
    topic: MakeTopic,
    read: Read,
    tmp_path: Path,
) -> None:
    cluster: Cluster = start_cluster(data_dir=tmp_path / "data")
    servers = cluster.bootstrap_servers
    name = topic(2, servers=servers)
    count = 400_000
    options = {
        "kafka.bootstrap.servers": servers,
        "topic": name,
        "kafka.batch.size": "4000",
        "kafka.retry.backoff.ms": "20",
    }
    restarted = threading.Event()

    def restart_in_the_middle() -> None:
        wait_for_first_message(servers, name)
        cluster.restart()
        restarted.set()

    mishap = threading.Thread(target=restart_in_the_middle)
    mishap.start()
    frame = numbers(spark, count, tasks=4)
    frame.write.format("ottla").mode("append").options(**options).save()
    assert restarted.is_set()  # or it was not in the middle
    mishap.join()
    found = Counter(int(message.value() or b"") for message in read(name, count, 2, servers))
    assert found == Counter(range(count))


def wait_for_first_message(servers: str, topic: str) -> None:
    """Wait for a message that is stored. It may be part of an open transaction."""
    settings = {"bootstrap.servers": servers, "isolation.level": "read_uncommitted"}
    consumer = Consumer({**settings, "group.id": "waiting"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert consumer.consume(1, TIMEOUT_S)
    consumer.close()


def test_a_write_that_failed_shows_nothing(
    spark: SparkSession, topic: MakeTopic, write: Write, read: Read
) -> None:
    name = topic()
    good = numbers(spark, 2_000, tasks=2)
    too_large = spark.range(1).selectExpr("repeat('v', 9000) as value")
    with pytest.raises(PythonException, match=r"max\.request\.size"):
        write(good.union(too_large), topic=name, **{"kafka.max.request.size": "4000"})
    write(good, topic=name)
    stored = Counter(int(message.value() or b"") for message in read(name, 2_000))
    assert stored == Counter(range(2_000))


def test_a_write_that_failed_leaves_its_rows_behind(
    spark: SparkSession, topic: MakeTopic, write: Write, read: Read
) -> None:
    """At least once: what was stored before a failure stays, and comes again with the next try."""
    name = topic()
    good = numbers(spark, 20_000, tasks=1)
    too_large = spark.range(1).selectExpr("repeat('v', 9000) as value")
    small = {"kafka.max.request.size": "4000"}
    at_least_once = {"deliveryGuarantee": "at-least-once"}
    with pytest.raises(PythonException, match=r"max\.request\.size"):
        write(good.union(too_large).coalesce(1), topic=name, **small, **at_least_once)
    write(good, topic=name)
    stored = Counter(int(message.value() or b"") for message in read(name, 20_001, at_least=True))
    assert set(stored) == set(range(20_000))
    # How many were stored by then depends on who was faster.
    assert max(stored.values()) == 2
