"""Streams in a real session: exactly once over restarts, triggers, losses, groups, progress."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as RdPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from ottla.client.address import parse_addresses
from ottla.client.cluster import Client
from ottla.client.errors import Refused
from ottla.client.groups.groups import describe_groups
from ottla.client.groups.lag import group_lag
from ottla.model.errors import ErrorCode
from ottla.testing import Cluster
from ottla_spark import source_metrics
from tests.support.spark_fixtures import MakeTopic, Produce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

TIMEOUT_S = 60


class Rows:
    """What a stream gave, by batch: rows of (topic, partition, offset), in the driver's memory."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[str, int, int]]] = {}

    def take(self, frame: DataFrame, batch: int) -> None:
        rows = frame.select("topic", "partition", "offset").collect()
        self.batches[batch] = sorted((row.topic, row.partition, row.offset) for row in rows)

    @property
    def all(self) -> list[tuple[str, int, int]]:
        return sorted(row for rows in self.batches.values() for row in rows)


class Streams:
    """Starts queries, all with the same checkpoint, and waits for them."""

    def __init__(self, spark: SparkSession, servers: str, checkpoint: Path) -> None:
        self._spark = spark
        self._servers = servers
        self._checkpoint = checkpoint
        self.queries: list[StreamingQuery] = []

    def start(
        self, rows: Rows, *, name: str | None = None, available_now: bool = False, **options: str
    ) -> StreamingQuery:
        servers = options.pop("servers", self._servers)
        usual = {"kafka.bootstrap.servers": servers, "fetchOffset.retryIntervalMs": "10"}
        frame = self._spark.readStream.format("ottla").options(**usual | options).load()
        writer = frame.writeStream.foreachBatch(rows.take)
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        if available_now:
            writer = writer.trigger(availableNow=True)
        if name is not None:
            writer = writer.queryName(name)
        self.queries.append(writer.start())
        return self.queries[-1]

    def run(self, rows: Rows, **options: Any) -> StreamingQuery:
        """Process everything that is there now, and end the query."""
        query = self.start(rows, available_now=True, **options)
        assert query.awaitTermination(TIMEOUT_S)
        return query


@pytest.fixture
def streams(spark: SparkSession, bootstrap_servers: str, tmp_path: Path) -> Iterator[Streams]:
    made = Streams(spark, bootstrap_servers, tmp_path / "checkpoint")
    yield made
    for query in made.queries:
        query.stop()


@pytest.fixture
def admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers})


def eventually(query: StreamingQuery, action: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not action():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, query.lastProgress
        threading.Event().wait(0.05)


def committed(servers: str, group: str) -> dict[int, tuple[int, int | None]]:
    """Return each partition's committed offset and lag, as `ottla groups describe` does."""
    with Client(parse_addresses(servers)) as client:
        try:
            (described,) = describe_groups(client, [group])
        except Refused as error:
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            return {}  # the first commit makes the group
        found = group_lag(client, described)
    return {
        each.partition.partition: (each.committed.offset, each.lag)
        for each in found
        if each.committed is not None
    }


def test_available_now_ends_and_a_restart_goes_on_exactly(
    streams: Streams, topic: MakeTopic, produce: Produce
) -> None:
    name = topic(3)
    produce(name, 30)
    options = {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "12"}
    first = Rows()
    streams.run(first, **options)
    assert first.all == [(name, p, offset) for p in range(3) for offset in range(10)]
    assert [len(rows) for rows in first.batches.values() if rows] == [12, 12, 6]
    produce(name, 15, first=30)
    second = Rows()
    streams.run(second, **options)
    assert second.all == [(name, p, offset) for p in range(3) for offset in range(10, 15)]


def test_how_far_a_stream_is_behind(
    spark: SparkSession, streams: Streams, topic: MakeTopic, produce: Produce
) -> None:
    name = topic(3)
    produce(name, 30)
    options = {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "12"}
    query = streams.run(Rows(), **options)
    batches = [each for each in query.recentProgress if each.numInputRows]
    ((first,), (second,), (last,)) = map(source_metrics, batches)
    assert first == {
        "minOffsetsBehindLatest": "6",
        "maxOffsetsBehindLatest": "6",
        "avgOffsetsBehindLatest": "6.0",
    }
    assert (second["maxOffsetsBehindLatest"], last["maxOffsetsBehindLatest"]) == ("2", "0")
    # Spark's own metrics stay empty: it asks only sources that report some, and none of its
    # classes for Python sources does. If this fails with a newer PySpark, report them there.
    assert [each.sources[0].metrics for each in batches] == [{}, {}, {}]
    jvm: Any = spark._jvm
    reporting = jvm.org.apache.spark.util.Utils.classForName(
        "org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics", True, False
    )
    for name in ("", "WithAdmissionControl", "WithTriggerAvailableNow"):
        python = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream"
        stream = jvm.org.apache.spark.util.Utils.classForName(python + name, True, False)
        assert not reporting.isAssignableFrom(stream)


def test_a_stream_of_committed_records_reads_each_once_and_stops_at_open_transactions(
    streams: Streams, topic: MakeTopic, produce: Produce, bootstrap_servers: str
) -> None:
    name = topic()
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    for end in (producer.commit_transaction, producer.abort_transaction, None):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(name, b"")
        assert producer.flush(TIMEOUT_S) == 0
        if end is not None:
            end(TIMEOUT_S)
    produce(name, 1)
    rows = Rows()
    options = {"subscribe": name, "startingOffsets": "earliest", "groupId": "none"}
    options["kafka.isolation.level"] = "read_committed"
    query = streams.run(rows, **options)
    assert rows.all == [(name, 0, offset) for offset in range(3)]
    progress = next(each for each in query.recentProgress if each.numInputRows)
    assert source_metrics(progress)[0]["maxOffsetsBehindLatest"] == "0"
    last_stable_offset = 8  # two transactions of three records and a marker
    assert json.loads(progress.sources[0].latestOffset) == {name: {"0": last_stable_offset}}
    producer.commit_transaction(TIMEOUT_S)
    streams.run(rows, **options)
    assert rows.all == [(name, 0, offset) for offset in (0, 1, 2, 8, 9, 10, 11)]


def test_a_running_stream_follows_new_records_partitions_and_restarts_of_the_broker(
    streams: Streams, topic: MakeTopic, produce: Produce, start_cluster: Callable[..., Cluster]
) -> None:
    cluster = start_cluster()
    servers = cluster.bootstrap_servers
    name = topic(1, servers=servers)
    produce(name, 5, servers=servers)
    rows, query_name = Rows(), f"follow-{uuid4().hex[:6]}"
    query = streams.start(rows, subscribe=name, servers=servers, name=query_name)
    eventually(query, lambda: 0 in rows.batches)
    assert rows.all == []
    produce(name, 4, servers=servers)
    expected = [(name, 0, offset) for offset in range(5, 9)]
    eventually(query, lambda: rows.all == expected)

    # The group is named after the query, and nothing is left to read.
    group = f"spark-{query_name}"
    eventually(query, lambda: committed(servers, group) == {0: (9, 0)})

    cluster.restart()
    produce(name, 2, servers=servers)
    expected += [(name, 0, 9), (name, 0, 10)]
    eventually(query, lambda: rows.all == expected)

    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions(name, 2)])[name].result(TIMEOUT_S)
    produce(name, 3, partition=1, servers=servers)
    expected += [(name, 1, offset) for offset in range(3)]
    eventually(query, lambda: rows.all == expected)
    eventually(query, lambda: committed(servers, group) == {0: (11, 0), 1: (3, 0)})

    assert query.lastProgress is not None
    progress = json.loads(query.lastProgress["sources"][0]["latestOffset"])
    assert progress == {name: {"0": 11, "1": 3}}


def test_records_that_retention_removed_fail_the_query_and_are_counted(
    streams: Streams, topic: MakeTopic, produce: Produce, admin: AdminClient
) -> None:
    name = topic()
    produce(name, 10)
    options = {"subscribe": name, "startingOffsets": "earliest"}
    streams.run(Rows(), maxOffsetsPerTrigger="4", groupId="none", **options)
    produce(name, 10)
    gone = RdPartition(name, 0, 13)
    admin.delete_records([gone])[gone].result(TIMEOUT_S)
    with pytest.raises(Exception, match=rf"{name}-0: 3 offsets from 10 to 12 cannot be read"):
        streams.run(Rows(), **options)
    rows = Rows()
    streams.run(rows, failOnDataLoss="false", **options)
    assert rows.all == [(name, 0, offset) for offset in range(13, 20)]


def test_a_topic_that_was_recreated_fails_the_query(
    streams: Streams, topic: MakeTopic, produce: Produce, admin: AdminClient
) -> None:
    name = topic()
    produce(name, 10)
    options = {"subscribe": name, "startingOffsets": "earliest", "groupId": "none"}
    streams.run(Rows(), **options)
    admin.delete_topics([name])[name].result(TIMEOUT_S)
    with pytest.raises(Exception, match=rf"{name}-0: the records from offset 10 on are lost: the"):
        streams.run(Rows(), **options)
    topic(name=name)
    produce(name, 3)
    with pytest.raises(Exception, match=r"7 records \(offsets 3 to 9\) are lost: the log ends"):
        streams.run(Rows(), **options)
    rows = Rows()
    streams.run(rows, failOnDataLoss="false", **options)
    produce(name, 2)
    streams.run(rows, **options)
    assert rows.all == [(name, 0, 3), (name, 0, 4)]


def test_the_group_of_a_stream_shows_how_far_it_has_come(
    streams: Streams, topic: MakeTopic, produce: Produce, bootstrap_servers: str
) -> None:
    name, group = topic(2), f"g-{uuid4().hex[:8]}"
    produce(name, 10)
    streams.run(Rows(), subscribe=name, startingOffsets="earliest", groupId=group)
    produce(name, 4)
    assert committed(bootstrap_servers, group) == {0: (5, 2), 1: (5, 2)}


def test_a_query_without_a_name_has_its_id_in_the_group(
    streams: Streams, topic: MakeTopic, produce: Produce, bootstrap_servers: str
) -> None:
    name = topic()
    produce(name, 2)
    options = {"subscribe": name, "startingOffsets": "earliest", "groupIdPrefix": "etl"}
    query = streams.run(Rows(), **options)
    assert committed(bootstrap_servers, f"etl-{query.id}") == {0: (2, 0)}


def test_ending_offsets_are_refused(streams: Streams) -> None:
    with pytest.raises(Exception, match="endingOffsets is for batch queries"):
        streams.run(Rows(), subscribe="t", endingOffsets="latest")
