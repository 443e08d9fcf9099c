"""A compacted topic in the remote tier of a real broker, which is killed while it rewrites it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from ottla.cli.main import main
from ottla.testing import Cluster
from ottla.tier_reader import open_topic
from tests.e2e.test_remote_tier import DEADLINE_S, eventually, is_settled, local_segments, settings

KEYS = 400
CONFIG = {
    "cleanup.policy": "compact",
    "remote.storage.enable": "true",
    "internal.segment.bytes": "40000",
    "local.retention.bytes": "40000",
    "min.cleanable.dirty.ratio": "0.1",
    "file.delete.delay.ms": "300",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Cluster]:
    """Yield one broker in a process of its own."""
    properties = {**settings(tmp_path), "log.cleaner.backoff.ms": 200}
    with Cluster(processes=True, data_dir=tmp_path / "data", properties=properties) as started:
        started.create_topic("t", configs=CONFIG)
        yield started


class Table:
    """Writes values of keys, and knows the last one of each."""

    def __init__(self, cluster: Cluster) -> None:
        self.values: dict[bytes, bytes] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 5,
                "message.timeout.ms": 1000 * DEADLINE_S,
            }
        )

    def write(self, keys: range, text: bytes) -> None:
        """Write values that begin with a text."""
        for number in keys:
            key, value = b"key-%d" % number, b"%s-%d-" % (text, number) + b"x" * 300
            self._producer.produce("t", value, key=key, partition=0)
            self.values[key] = value
        self._producer.poll(0)

    def finish(self) -> None:
        assert self._producer.flush(DEADLINE_S) == 0


def read_all(cluster: Cluster) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return offset, key and value of all records, in the order in which they come."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    found: list[tuple[int, bytes | None, bytes | None]] = []
    while True:
        message = consumer.poll(DEADLINE_S)
        assert message is not None, f"nothing comes after {found[-1:]}"
        error = message.error()
        if error is None:
            key, value, offset = message.key(), message.value(), message.offset()
            assert not isinstance(key, str)
            assert not isinstance(value, str)
            assert offset is not None
            found.append((offset, key, value))
        elif error.code() == KafkaError._PARTITION_EOF:
            consumer.close()
            return found
        else:
            assert error.retriable(), error


def table_of(records: list[tuple[int, bytes | None, bytes | None]]) -> dict[bytes, bytes]:
    offsets = [offset for offset, _, _ in records]
    assert offsets == sorted(set(offsets)), "records come once, in order"
    table = {key: value for _, key, value in records}
    return {key: value for key, value in table.items() if key is not None and value is not None}


def remote_logs(tmp_path: Path) -> set[str]:
    """Return the names of the segments in the store."""
    return {path.name for path in (tmp_path / "cold").glob("t-*/0/*.log")}


def is_rewriting(tmp_path: Path) -> bool:
    """Return True if the store has two segments with the same base: one replaces the other."""
    bases = [name.partition("-")[0] for name in remote_logs(tmp_path)]
    return len(set(bases)) < len(bases)


def wait_for_a_rewrite(tmp_path: Path, before: set[str]) -> None:
    """Wait until a segment is being replaced, or was: the moment may be too short to be seen."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_rewriting(tmp_path) and before <= remote_logs(tmp_path):
        assert time.monotonic() < deadline


def test_a_broker_is_killed_while_it_rewrites_remote_segments(
    broker: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Table(broker)
    table.write(range(KEYS), b"first")
    table.finish()
    eventually(lambda: local_segments(tmp_path)[0] > KEYS // 2)
    for number in range(2):
        eventually(lambda: not is_rewriting(tmp_path))
        before = remote_logs(tmp_path)
        table.write(range(0, KEYS, 2), b"more%d" % number)
        wait_for_a_rewrite(tmp_path, before)
        broker.kill()
        broker.start(1)
    table.finish()
    assert table_of(read_all(broker)) == table.values

    at = ["--bootstrap-server", broker.bootstrap_servers]
    assert main(["compact", "t", *at]) == 0
    records = read_all(broker)
    assert table_of(records) == table.values
    assert len(records) == KEYS, "each key is there once"

    capsys.readouterr()
    assert main(["erase", "--topic", "t", "--key", "key-7", "--json", *at]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["erased"]
    (remote,) = [each for each in report["replicas"] if each["remote"]]
    assert sum(segment["records"] for segment in remote["segments"]) > KEYS // 2
    assert not any(segment["values"] for each in report["replicas"] for segment in each["segments"])
    assert not [path for path in (tmp_path / "cold").rglob("*.log") if b"-7-x" in path.read_bytes()]
    del table.values[b"key-7"]
    assert table_of(read_all(broker)) == table.values

    eventually(lambda: is_settled(tmp_path))
    assert main(["tier", "verify", "t", *at]) == 0
    partition = open_topic(f"file:{tmp_path}/cold", "t").partition(0)
    read = [(each.offset, each.key, each.value) for each in partition.records()]
    assert read == [each for each in read_all(broker) if each[0] < partition.next_offset]
