"""Streaming writes of a real session: from topic to topic, over restarts of query and broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from pyspark.errors import StreamingQueryException

from ottla.testing import Cluster
from tests.support.spark_fixtures import MakeTopic, Produce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

TIMEOUT_S = 100  # the first batch compiles; a busy machine takes its time


def source(spark: SparkSession, servers: str, topic: str, **options: str) -> DataFrame:
    named = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    return spark.readStream.format("ottla").options(**named | options).load()


def run(
    frame: DataFrame, servers: str, checkpoint: Path, mode: str = "append", **options: str
) -> StreamingQuery:
    """Write what is there now, and stop."""
    named = {"kafka.bootstrap.servers": servers, "checkpointLocation": str(checkpoint)} | options
    query = (
        frame.writeStream.format("ottla")
        .outputMode(mode)
        .trigger(availableNow=True)
        .options(**named)
        .start()
    )
    assert query.awaitTermination(TIMEOUT_S), query.recentProgress
    return query


def values(servers: str, topic: str, count: int, partitions: int = 1) -> Counter[bytes | None]:
    """Return the values in a topic: that many, and not one more."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reading"})
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
    found: Counter[bytes | None] = Counter()
    while found.total() < count:
        messages = consumer.consume(count, 10)
        assert messages, f"only {found.total()} of {count}"
        found.update(message.value() for message in messages)
    assert consumer.consume(1, 0.1) == []
    consumer.close()
    return found


def test_from_topic_to_topic_over_a_restart_of_query_and_broker(
    spark: SparkSession,
    start_cluster: Callable[..., Cluster],
    topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
) -> None:
    cluster = start_cluster(data_dir=tmp_path / "data")
    servers = cluster.bootstrap_servers
    first, second = topic(2, servers=servers), topic(3, servers=servers)
    produce(first, 500, servers=servers)
    frame = source(spark, servers, first).select("key", "value")
    run(frame, servers, tmp_path / "checkpoint", topic=second)
    cluster.restart()
    produce(first, 500, first=500, servers=servers)
    query = run(frame, servers, tmp_path / "checkpoint", topic=second)
    assert query.lastProgress is not None
    wanted = Counter(f"v{number}".encode() for number in range(1000))
    assert values(servers, second, 1000, 3) == wanted


def test_complete_mode_appends_every_result(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    first, second = topic(), topic()
    produce(first, 10, value=lambda number: b"ab"[number % 2 : number % 2 + 1])
    counts = (
        source(spark, bootstrap_servers, first)
        .groupBy("value")
        .count()
        .selectExpr("value as key", "cast(count as string) as value")
    )
    run(counts, bootstrap_servers, tmp_path / "checkpoint", "complete", topic=second)
    assert values(bootstrap_servers, second, 2) == {b"5": 2}


def test_update_mode_is_refused_by_spark(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name = topic()
    produce(name, 1)
    frame = source(spark, bootstrap_servers, name).select("value")
    with pytest.raises(StreamingQueryException, match="does not support Update mode"):
        run(frame, bootstrap_servers, tmp_path / "checkpoint", "update", topic=name)


def test_columns_are_checked_when_the_query_starts(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name = topic()
    produce(name, 1)
    frame = source(spark, bootstrap_servers, name).select("key")
    with pytest.raises(StreamingQueryException, match="Required attribute 'value' not found"):
        run(frame, bootstrap_servers, tmp_path / "checkpoint", topic=name)
