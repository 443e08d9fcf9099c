"""Loads and pipelines leave out the aborted transactions of a real Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import ottla_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)
TIMEOUT_S = 60
TOPIC = "transactions"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    started = ottla_spark.session("local[2]")
    yield started
    started.stop()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield an Apache Kafka whose topic has committed, aborted and open transactions."""
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
    servers = f"127.0.0.1:{broker.port}"
    try:
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(TIMEOUT_S)
        producer = write_transactions(servers)
        yield servers
        producer.abort_transaction(TIMEOUT_S)
    finally:
        broker.kill()


def write_transactions(servers: str) -> Producer:
    """Return a producer whose last transaction is open.

    Write five records in each of six transactions. Every other one is aborted.
    """
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "tx", "linger.ms": 0})
    producer.init_transactions(TIMEOUT_S)
    for number in range(6):
        producer.begin_transaction()
        for record in range(5):
            producer.produce(TOPIC, b'{"tx": %d, "n": %d}' % (number, record))
        producer.flush(TIMEOUT_S)
        if number == 5:
            break
        if number % 2:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    return producer


@pytest.mark.parametrize(
    ("level", "expected"), [(None, [0, 2, 4]), ("read_uncommitted", [0, 1, 2, 3, 4, 5])]
)
def test_a_load(
    spark: SparkSession, kafka: str, tmp_path: Path, level: str | None, expected: list[int]
) -> None:
    from deltalake import DeltaTable

    result = ottla_spark.load(
        TOPIC,
        f"delta:{tmp_path}/table",
        bootstrap_servers=kafka,
        spark=spark,
        format="json",
        isolation_level=level,
    )
    assert (result.tally.rows, result.lag) == (5 * len(expected), 0)
    found = DeltaTable(tmp_path / "table").to_pyarrow_table()["tx"].to_pylist()
    assert sorted(found) == sorted(expected * 5)


def test_a_pipeline(spark: SparkSession, kafka: str, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    text = f"""\
        bootstrap_servers: {kafka}
        sources:
          records: {{topic: {TOPIC}, format: json, schema: "tx long, n long"}}
        sinks:
          lake: {{from: records, table: "parquet:lake"}}
        """
    file.write_text(dedent(text))
    ottla_spark.pipeline(file, spark).run(once=True)
    found = [row.tx for row in spark.read.parquet(f"{tmp_path}/lake").collect()]
    assert sorted(found) == sorted([0, 2, 4] * 5)
