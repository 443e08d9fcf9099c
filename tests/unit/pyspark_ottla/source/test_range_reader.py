"""Ranges read from a real broker: the records, their order, and failures during the read."""

from __future__ import annotations

import gc
import logging
import resource
import threading
from collections.abc import Callable, Iterator, Mapping
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.client.connection import Connection
from ottla.client.errors import ClientError
from ottla.model.ids import ZERO_UUID
from ottla.testing import Cluster
from pyspark_ottla.errors import DataLoss
from pyspark_ottla.fetch.offset_range import OffsetRange
from pyspark_ottla.options.read_settings import ReadSettings
from pyspark_ottla.source.range_reader import read_ranges

TIMEOUT_S = 30
MakeSettings = Callable[..., ReadSettings]


class Topic:
    """A topic with a few partitions, written by librdkafka."""

    def __init__(self, servers: str, partitions: int = 1, **configs: str) -> None:
        self.name = f"t-{uuid4().hex[:8]}"
        self.servers = servers
        self.admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        new = NewTopic(self.name, partitions, 1, config=configs)
        self.admin.create_topics([new])[self.name].result(TIMEOUT_S)

    def write(
        self,
        count: int,
        partition: int = 0,
        *,
        value: bytes = b"v%d",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        producer = Producer(
            {"bootstrap.servers": self.servers, "linger.ms": 5, "log_level": 0, **(settings or {})}
        )
        for number in range(count):
            content = value % number if b"%d" in value else value
            while True:
                try:
                    producer.produce(self.name, content, b"k%d" % number, partition)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(TIMEOUT_S) == 0

    def range(self, start: int, end: int, partition: int = 0) -> OffsetRange:
        return OffsetRange(self.name, ZERO_UUID, partition, start, end)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as started:
        yield started


def offsets(batches: Iterator[pa.RecordBatch], partition: int = 0) -> list[int]:
    found: list[int] = []
    for batch in batches:
        pairs = zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)
        found += [offset for at, offset in pairs if at == partition]
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_librdkafka_in_every_codec(
    cluster: Cluster, settings_for: MakeSettings, codec: str
) -> None:
    topic = Topic(cluster.bootstrap_servers)
    topic.write(3000, value=b"some value %d", settings={"compression.type": codec})
    made = pa.Table.from_batches(
        read_ranges([topic.range(5, 2995)], settings_for(cluster.bootstrap_servers))
    )
    made.validate(full=True)
    assert made["offset"].to_pylist() == list(range(5, 2995))
    assert made["value"].to_pylist() == [b"some value %d" % n for n in range(5, 2995)]
    assert made["key"].to_pylist() == [b"k%d" % n for n in range(5, 2995)]


def test_several_ranges_of_several_partitions_of_several_topics(
    cluster: Cluster, settings_for: MakeSettings
) -> None:
    first, second = Topic(cluster.bootstrap_servers, 3), Topic(cluster.bootstrap_servers)
    for partition in range(3):
        first.write(1000, partition)
    second.write(500)
    ranges = [
        first.range(100, 200, 0),
        first.range(0, 1000, 2),
        first.range(200, 300, 0),
        second.range(490, 500),
        first.range(7, 7, 1),
    ]
    made = pa.Table.from_batches(read_ranges(ranges, settings_for(cluster.bootstrap_servers)))
    rows = {(r["topic"], r["partition"], r["offset"]) for r in made.to_pylist()}
    assert made.num_rows == len(rows) == 100 + 1000 + 100 + 10
    wanted = {(r.topic, r.partition, o) for r in ranges for o in range(r.start, r.end)}
    assert rows == wanted


def test_many_small_partitions_come_in_few_batches(
    cluster: Cluster, settings_for: MakeSettings
) -> None:
    topic = Topic(cluster.bootstrap_servers, 150)
    for partition in range(150):
        topic.write(3, partition)
    ranges = [topic.range(0, 3, partition) for partition in range(150)]
    made = list(read_ranges(ranges, settings_for(cluster.bootstrap_servers)))
    assert [batch.num_rows for batch in made] == [450]


def test_batches_larger_than_the_fetch_limit(cluster: Cluster, settings_for: MakeSettings) -> None:
    topic = Topic(cluster.bootstrap_servers, 2)
    topic.write(20, 0, value=bytes(300_000))
    topic.write(20, 1, value=bytes(300_000))
    limited = settings_for(
        cluster.bootstrap_servers, fetch_max_bytes=1000, max_partition_fetch_bytes=500
    )
    made = list(read_ranges([topic.range(0, 20, 0), topic.range(3, 9, 1)], limited))
    assert offsets(iter(made), 0) == list(range(20))
    assert offsets(iter(made), 1) == list(range(3, 9))


def test_nothing_to_read(cluster: Cluster, settings_for: MakeSettings) -> None:
    settings = settings_for(cluster.bootstrap_servers)
    assert list(read_ranges([], settings)) == []
    assert list(read_ranges([Topic(cluster.bootstrap_servers).range(4, 4)], settings)) == []


def test_a_reader_that_stops_early_leaves_nothing_running(
    cluster: Cluster, settings_for: MakeSettings
) -> None:
    topic = Topic(cluster.bootstrap_servers)
    topic.write(300, value=bytes(100_000))
    threads = threading.active_count()
    reading = read_ranges([topic.range(0, 300)], settings_for(cluster.bootstrap_servers))
    assert next(reading).num_rows > 0
    assert _open_connections()
    reading.close()  # type: ignore[attr-defined]
    assert threading.active_count() == threads
    assert not _open_connections()


def _open_connections() -> list[Connection]:
    found = (each for each in gc.get_objects() if isinstance(each, Connection))
    return [connection for connection in found if connection.fileno() >= 0]


def test_a_restart_of_the_broker_in_the_middle(settings_for: MakeSettings) -> None:
    with Cluster() as cluster:
        topic = Topic(cluster.bootstrap_servers)
        topic.write(400, value=bytes(100_000))
        settings = settings_for(cluster.bootstrap_servers, fetch_max_bytes=1 << 20)
        reading = read_ranges([topic.range(0, 400)], settings)
        found = offsets(iter([next(reading)]))
        cluster.restart()
        found += offsets(reading)
        assert found == list(range(400))


def test_a_broker_that_stays_away(settings_for: MakeSettings) -> None:
    with Cluster() as cluster:
        topic = Topic(cluster.bootstrap_servers)
        topic.write(400, value=bytes(100_000))
        settings = settings_for(
            cluster.bootstrap_servers, fetch_max_bytes=1 << 20, request_timeout_ms=700
        )
        reading = read_ranges([topic.range(0, 400)], settings)
        next(reading)
        cluster.stop()
        with pytest.raises(ClientError, match=r"127\.0\.0\.1"):
            list(reading)


def test_deleted_records_are_a_loss(cluster: Cluster, settings_for: MakeSettings) -> None:
    topic = Topic(cluster.bootstrap_servers)
    topic.write(100)
    end = TopicPartition(topic.name, 0, 30)
    next(iter(topic.admin.delete_records([end]).values())).result(TIMEOUT_S)
    settings = settings_for(cluster.bootstrap_servers)
    with pytest.raises(
        DataLoss, match=rf"{topic.name}-0: 20 offsets from 10 to 29 .* begins at 30"
    ):
        list(read_ranges([topic.range(10, 50)], settings))
    with pytest.raises(DataLoss, match=r"10 offsets from 10 to 19 .*failOnDataLoss"):
        list(read_ranges([topic.range(10, 20)], settings))


def test_a_loss_that_is_only_warned_about(
    cluster: Cluster, settings_for: MakeSettings, caplog: pytest.LogCaptureFixture
) -> None:
    topic = Topic(cluster.bootstrap_servers)
    topic.write(100)
    end = TopicPartition(topic.name, 0, 30)
    next(iter(topic.admin.delete_records([end]).values())).result(TIMEOUT_S)
    settings = settings_for(cluster.bootstrap_servers, fail_on_data_loss=False)
    with caplog.at_level(logging.WARNING):
        assert offsets(read_ranges([topic.range(10, 50)], settings)) == list(range(30, 50))
        assert offsets(read_ranges([topic.range(10, 20)], settings)) == []
    assert "20 offsets from 10 to 29 cannot be read" in caplog.text


@pytest.mark.parametrize("fail", [True, False])
def test_a_range_past_the_end_of_the_log(
    cluster: Cluster, settings_for: MakeSettings, fail: bool
) -> None:
    topic = Topic(cluster.bootstrap_servers)
    topic.write(10)
    settings = settings_for(
        cluster.bootstrap_servers,
        fail_on_data_loss=fail,
        request_timeout_ms=600,
        fetch_max_wait_ms=100,
    )
    if fail:
        with pytest.raises(DataLoss, match=r"2 offsets from 10 to 11 .* the log ends at 10"):
            list(read_ranges([topic.range(5, 12)], settings))
        with pytest.raises(DataLoss, match="the log ends at 10"):
            list(read_ranges([topic.range(11, 12)], settings))
    else:
        assert offsets(read_ranges([topic.range(5, 12)], settings)) == list(range(5, 10))
        assert offsets(read_ranges([topic.range(11, 12)], settings)) == []


def test_a_deleted_topic(cluster: Cluster, settings_for: MakeSettings) -> None:
    topic = Topic(cluster.bootstrap_servers)
    topic.write(10)
    topic.admin.delete_topics([topic.name])[topic.name].result(TIMEOUT_S)
    settings = settings_for(cluster.bootstrap_servers, request_timeout_ms=500)
    with pytest.raises(DataLoss, match=r"10 offsets from 0 to 9 .* the topic was deleted"):
        list(read_ranges([topic.range(0, 10)], settings))


def test_a_topic_created_anew(cluster: Cluster, settings_for: MakeSettings) -> None:
    topic = Topic(cluster.bootstrap_servers)
    topic.write(10)
    planned = OffsetRange(topic.name, b"the planned id--", 0, 0, 10)
    settings = settings_for(cluster.bootstrap_servers)
    with pytest.raises(DataLoss, match="deleted and created again"):
        list(read_ranges([planned], settings))
    lenient = settings_for(cluster.bootstrap_servers, fail_on_data_loss=False)
    assert list(read_ranges([planned], lenient)) == []


def test_memory_does_not_grow_with_what_is_read(
    cluster: Cluster, settings_for: MakeSettings
) -> None:
    topic = Topic(cluster.bootstrap_servers)
    topic.write(30_000, value=bytes(10_000), settings={"compression.type": "zstd"})
    settings = settings_for(cluster.bootstrap_servers, columns=("value", "offset"))

    def read(end: int) -> int:
        rows = sum(batch.num_rows for batch in read_ranges([topic.range(0, end)], settings))
        assert rows == end
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    first = read(3_000)
    assert read(30_000) < first + 20_000
