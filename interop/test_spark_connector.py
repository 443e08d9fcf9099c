"""The source `ottla` gives the rows that Spark's own Kafka connector gives, of the same topics.

On an Ottla broker, and on an Apache Kafka for what only that has: aborted transactions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.timeout(600)
TIMEOUT_S = 60
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """Yield a session with the jars of the connector."""
    from harness.problem import BenchError
    from ottla_spark.session import session
    from spark.connector import connector_jars

    try:
        jars = connector_jars()
    except BenchError as error:
        pytest.skip(str(error))
    started = session("local[2]", conf={"spark.jars": ",".join(map(str, jars))})
    yield started
    started.stop()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield an Apache Kafka of its own."""
    from harness.problem import BenchError
    from harness.systems import Kafka

    try:
        system = Kafka(None)
    except BenchError as error:
        pytest.skip(str(error))
    # One broker cannot keep the three copies that are the default.
    alone = {
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    broker = system.new_broker(tmp_path_factory.mktemp("kafka") / "broker", alone)
    broker.start()
    yield f"127.0.0.1:{broker.port}"
    broker.kill()


def create(servers: str, partitions: int, **configs: str) -> str:
    name = f"t-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, partitions, 1, config=configs)])[name].result(TIMEOUT_S)
    return name


def rows(spark: SparkSession, source: str, servers: str, topic: str, **options: str) -> list[Row]:
    reader = spark.read.format(source).option("kafka.bootstrap.servers", servers)
    frame = reader.option("subscribe", topic).options(**options).load()
    return frame.orderBy("partition", "offset").collect()


def same_rows(spark: SparkSession, servers: str, topic: str, **options: str) -> list[Row]:
    ours = rows(spark, "ottla", servers, topic, **options)
    theirs = rows(spark, "kafka", servers, topic, **options)
    assert ours == theirs
    return ours


def test_every_codec_nulls_and_headers(spark: SparkSession, cluster: Cluster) -> None:
    servers = cluster.bootstrap_servers
    topic = create(servers, 3, **{"retention.ms": "-1"})
    for number, codec in enumerate(CODECS):
        producer = Producer({"bootstrap.servers": servers, "compression.type": codec})
        for record in range(200):
            headers: list[tuple[str, str | bytes | None]] | None = None
            if record % 7 == 0:
                headers = [("a", b"1"), ("ключ", None), ("a", b"")]
            producer.produce(
                topic,
                None if record % 5 == 0 else b"value %d" % record * 20,
                None if record % 3 == 0 else b"key %d" % record,
                record % 3,
                timestamp=1_700_000_000_000 + 1000 * number + record,
                headers=headers,
            )
        assert producer.flush(TIMEOUT_S) == 0
    found = same_rows(spark, servers, topic, includeHeaders="true")
    assert len(found) == 200 * len(CODECS)
    assert {row.headers is None for row in found} == {True, False}
    ends = f'{{"{topic}":{{"0":90,"1":91,"2":-1}}}}'
    starts = f'{{"{topic}":{{"0":17,"1":-2,"2":250}}}}'
    part = same_rows(spark, servers, topic, startingOffsets=starts, endingOffsets=ends)
    assert len(part) == 73 + 91 + (len(found) - len([r for r in found if r.partition < 2]) - 250)


def test_log_append_time(spark: SparkSession, cluster: Cluster) -> None:
    servers = cluster.bootstrap_servers
    topic = create(servers, 1, **{"message.timestamp.type": "LogAppendTime"})
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, b"v", timestamp=1)
    assert producer.flush(TIMEOUT_S) == 0
    (found,) = same_rows(spark, servers, topic)
    assert found.timestampType == 1


def test_a_large_topic_that_is_split(spark: SparkSession, cluster: Cluster) -> None:
    servers = cluster.bootstrap_servers
    topic = create(servers, 2)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    for record in range(40_000):
        producer.produce(topic, b"value %d" % record, partition=record % 2)
        if record % 1000 == 0:
            producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    assert len(same_rows(spark, servers, topic, minPartitions="7")) == 40_000


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_aborted_transactions_of_a_real_kafka(
    spark: SparkSession, kafka: str, isolation: str
) -> None:
    topic = create(kafka, 2)
    names = [f"tx-{uuid4().hex}" for _ in range(2)]
    producers = [
        Producer({"bootstrap.servers": kafka, "transactional.id": name, "linger.ms": 0})
        for name in names
    ]
    for producer in producers:
        producer.init_transactions(TIMEOUT_S)
    for step in range(6):
        for number, producer in enumerate(producers):
            producer.begin_transaction()
            for record in range(10):
                producer.produce(topic, b"%d %d %d" % (number, step, record), partition=record % 2)
            producer.flush(TIMEOUT_S)
        for number, producer in enumerate(producers):
            if (step + number) % 3 == 0:
                producer.abort_transaction(TIMEOUT_S)
            else:
                producer.commit_transaction(TIMEOUT_S)
    plain = Producer({"bootstrap.servers": kafka})
    plain.produce(topic, b"after", partition=0)
    assert plain.flush(TIMEOUT_S) == 0
    found = same_rows(spark, kafka, topic, **{"kafka.isolation.level": isolation})
    assert len(found) == (81 if isolation == "read_committed" else 121)
