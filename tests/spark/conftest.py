"""Fixtures of the tests with a real Spark: one session for the run, a broker, topics, records.

The session has two cores (`local[2]`), no UI and no event log. The broker runs on a thread of
the test process; Spark's JVM and its Python workers talk to it over 127.0.0.1 as to any Kafka.
A test that stops or restarts a broker makes its own with `start_cluster` (tests/conftest.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

pytest.importorskip("pyspark", reason="needs ottla[spark]")

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.harness import shared_classes
from tests.harness.standalone_spark import StandaloneSpark
from tests.support.spark_fixtures import Headers, MakeTopic, Produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.testing import Cluster

# Every Java here lives for seconds, most of which it would spend on optimizing and verifying
# classes: short tests on two cores take a fifth less time without.
os.environ.setdefault(
    "JDK_JAVA_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
)
TIMEOUT_S = 30


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield the one session of the run."""
    from ottla_spark.session import session

    conf = {
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    with shared_classes.noted():
        started = session("local[2]", app_name="ottla-tests", conf=conf)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def shared_java_classes(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Make Java processes of tests start faster, if the session is there already."""
    shared_classes.share(tmp_path_factory.mktemp("classes") / "spark.jsa")


@pytest.fixture(scope="session")
def standalone_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneSpark]:
    """Yield a master and two workers, for drivers that are processes of their own."""
    with StandaloneSpark(tmp_path_factory.mktemp("standalone")) as running:
        yield running


@pytest.fixture
def standalone(standalone_spark: StandaloneSpark) -> StandaloneSpark:
    """Return the standalone Spark with both workers alive, whatever the test before has killed."""
    standalone_spark.fill()
    return standalone_spark


@pytest.fixture(scope="session")
def cluster(kafka_cluster: Cluster) -> Cluster:
    """Return the broker most tests share; topics keep them apart."""
    return kafka_cluster


@pytest.fixture
def topic(bootstrap_servers: str) -> MakeTopic:
    """Return a function that creates topics: one partition and a new name by default."""

    def make(
        partitions: int = 1,
        *,
        configs: dict[str, str] | None = None,
        servers: str | None = None,
        name: str | None = None,
    ) -> str:
        chosen = name or f"t-{uuid4().hex[:12]}"
        admin = AdminClient({"bootstrap.servers": servers or bootstrap_servers})
        wanted = NewTopic(chosen, partitions, 1, config=configs or {})
        admin.create_topics([wanted])[chosen].result(TIMEOUT_S)
        return chosen

    return make


def _key(number: int) -> bytes:
    return f"k{number}".encode()


def _value(number: int) -> bytes:
    return f"v{number}".encode()


@pytest.fixture
def produce(bootstrap_servers: str) -> Produce:
    """Return a function that writes records with librdkafka and waits for acknowledgements."""

    def write(
        topic: str,
        n: int,
        *,
        first: int = 0,
        partition: int | None = None,
        key: Callable[[int], bytes | None] = _key,
        value: Callable[[int], bytes | None] = _value,
        timestamp_ms: Callable[[int], int] | None = None,
        headers: Headers | None = None,
        servers: str | None = None,
        settings: dict[str, str] | None = None,
    ) -> None:
        target = {"bootstrap.servers": servers or bootstrap_servers, "acks": "all", "linger.ms": 1}
        producer = Producer(target | (settings or {}))
        partitions = len(producer.list_topics(topic, TIMEOUT_S).topics[topic].partitions)
        failures: list[object] = []
        for number in range(first, first + n):
            producer.produce(
                topic,
                key=key(number),
                value=value(number),
                partition=number % partitions if partition is None else partition,
                timestamp=timestamp_ms(number) if timestamp_ms else 0,
                headers=list(headers) if headers else [],
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
            producer.poll(0)
        assert producer.flush(TIMEOUT_S) == 0
        assert failures == []

    return write
