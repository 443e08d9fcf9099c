"""Compacted and tiered topics for Java's consumer and librdkafka, while brokers are killed.

The tier is in a server of S3's protocol from outside PyPI.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from java_programs import java_command
from versity_gateway import CLIENT_ENVIRONMENT, versity_gateway

from ottla.server.object_stores.blocking_store import all_objects, open_blocking_store
from ottla.testing import Cluster
from ottla.tier_reader import open_topic
from tests.e2e.test_remote_tier import (
    TOPIC_CONFIG,
    Writer,
    eventually,
    read_all,
    replicas_of,
    settings,
)

pytestmark = pytest.mark.timeout(600)
BUCKET = "cold"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
SILENCE_MS = 30_000
"""How long the consumer waits for another record before it ends."""


class JavaReader:
    """Java's console consumer, which reads a partition from its start in small steps."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.found: dict[int, tuple[str, str]] = {}
        """Key and value by offset."""

    def read(self, is_enough: Callable[[], bool]) -> None:
        """Read until a condition holds, or until the consumer ends."""
        assert self._process.stdout is not None
        last = max(self.found, default=-1)
        while not is_enough() and (line := self._process.stdout.readline()):
            offset_text, key, value = line.rstrip("\n").split("\t")
            offset = int(offset_text.removeprefix("Offset:"))
            assert offset > last, "records come once, in order"
            last = offset
            self.found[offset] = key, value

    def finish(self) -> None:
        """Read all that is left."""
        self.read(lambda: False)


@contextmanager
def java_reader(cluster: Cluster, jars: Path) -> Iterator[JavaReader]:
    arguments = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", "t"]
    arguments += ["--partition", "0", "--offset", "earliest", "--timeout-ms", str(SILENCE_MS)]
    for name, value in {"max.poll.records": "5", "max.partition.fetch.bytes": "4000"}.items():
        arguments += ["--command-property", f"{name}={value}"]
    for name in ("print.offset", "print.key"):
        arguments += ["--formatter-property", f"{name}=true"]
    command = java_command(CONSUMER, *arguments, class_path=f"{jars}/*")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield JavaReader(process)
        finally:
            process.kill()


@pytest.fixture
def jars() -> Path:
    """Return the directory of Kafka's jars."""
    from harness.jars import kafka_jars
    from harness.problem import BenchError

    try:
        return kafka_jars(None)[0]
    except BenchError as error:
        pytest.skip(str(error))


@pytest.fixture
def tier_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the URL of a tier in the other server."""
    with versity_gateway(tmp_path / "gateway", BUCKET) as address:
        for name, value in {**CLIENT_ENVIRONMENT, "AWS_ENDPOINT_URL": address}.items():
            monkeypatch.setenv(name, value)
        yield f"s3://{BUCKET}/tier"


def restart(cluster: Cluster, broker: int) -> None:
    cluster.kill(broker)
    cluster.start(broker)


def test_a_tier_in_another_s3_server_while_brokers_are_killed(
    tier_url: str, jars: Path, tmp_path: Path
) -> None:
    properties = settings(tmp_path) | {"remote.log.storage.url": tier_url}
    with Cluster(3, processes=True, data_dir=tmp_path / "data", properties=properties) as cluster:
        config = {**TOPIC_CONFIG, "min.insync.replicas": "1"}
        cluster.create_topic("t", replication_factor=2, configs=config)
        store = open_blocking_store(tier_url)

        def copied() -> int:
            return sum(each.key.endswith(".manifest") for each in all_objects(store, ""))

        writer = Writer(cluster)
        for _ in range(3):
            before = copied()
            writer.write(400)
            eventually(lambda before=before: copied() > before + 1)  # type: ignore[misc]
            restart(cluster, replicas_of(cluster)[0])
        writer.write(200)
        writer.finish()
        eventually(lambda: open_topic(tier_url, "t").partition(0).next_offset > 1000)
        assert read_all(cluster) == writer.acknowledged
        with java_reader(cluster, jars) as reader:
            for number in range(1, 4):
                reader.read(lambda number=number: len(reader.found) > 200 * number)  # type: ignore[misc]
                restart(cluster, replicas_of(cluster)[0])
            reader.finish()
        found = {offset: value.encode() for offset, (_, value) in reader.found.items()}
        assert found == writer.acknowledged
        remote = open_topic(tier_url, "t").partition(0)
        read = {record.offset: record.value for record in remote.records()}
        assert read == {o: v for o, v in writer.acknowledged.items() if o < remote.next_offset}


def test_java_reads_a_compacted_topic_while_brokers_are_killed(jars: Path, tmp_path: Path) -> None:
    properties = {"log.cleaner.backoff.ms": 100, "replica.lag.time.max.ms": 5000}
    config = {
        "cleanup.policy": "compact",
        "internal.segment.bytes": "20000",
        "min.cleanable.dirty.ratio": "0.01",
        "min.insync.replicas": "1",
    }
    with Cluster(3, processes=True, data_dir=tmp_path / "data", properties=properties) as cluster:
        cluster.create_topic("t", replication_factor=3, configs=config)
        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "enable.idempotence": True,
                "batch.num.messages": 7,
            }
        )
        expected: dict[str, str] = {}
        with java_reader(cluster, jars) as reader:
            for number in range(3000):
                key, value = f"k{number * 7 % 300}", f"{number:06d}" + "x" * 100
                expected[key] = value
                producer.produce("t", value, key=key, partition=0)
                if number % 1000 == 500:
                    assert producer.flush(120) == 0
                    reader.read(lambda: bool(reader.found))
                    restart(cluster, replicas_of(cluster)[0])
            assert producer.flush(120) == 0
            reader.finish()
        assert dict(reader.found.values()) == expected, "a reader who keeps up"
        wait_until_cleaned(tmp_path / "data", 3)
        with java_reader(cluster, jars) as reader:
            reader.read(lambda: len(reader.found) > 100)
            restart(cluster, replicas_of(cluster)[0])
            reader.finish()
        assert dict(reader.found.values()) == expected, "a reader who comes later"
        assert len(reader.found) < 1500, "it was cleaned"


def wait_until_cleaned(data: Path, brokers: int) -> None:
    """Wait until each replica has lost most of its records."""

    def sizes() -> list[int]:
        partitions = [data / f"broker-{number}" / "t-0" for number in range(1, brokers + 1)]
        return [sum(path.stat().st_size for path in each.glob("*.log")) for each in partitions]

    deadline = time.monotonic() + 120
    while max(sizes()) > 200_000:
        assert time.monotonic() < deadline, sizes()
        time.sleep(0.2)
