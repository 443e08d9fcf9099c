"""A tiered topic with an S3 server as store: consumers, `ottla tier`, readers without a broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from ottla.cli.main import main
from ottla.cli.sizes import size_text
from ottla.server.object_stores.blocking_store import all_objects, open_blocking_store
from ottla.testing import Cluster
from ottla.tier_reader import open_topic
from tests.harness.s3_server import ENVIRONMENT, create_bucket, s3_server

URL = "s3://tier/cluster"
TOPIC = "orders"
DEADLINE_S = 120
ROUNDS = 40


@contextmanager
def tiered_cluster(directory: Path, url: str) -> Iterator[Cluster]:
    """Yield a broker with a tier, and a topic in it."""
    settings: dict[str, str | int] = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.url": url,
        "remote.log.manager.task.interval.ms": 100,
        "log.retention.check.interval.ms": 200,
        "log.initial.task.delay.ms": 0,
        "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
    }
    with Cluster(data_dir=directory / "data", properties=settings) as started:
        started.create_topic(
            TOPIC,
            configs={
                "remote.storage.enable": "true",
                "internal.segment.bytes": "20000",
                "local.retention.bytes": "20000",
                "file.delete.delay.ms": "0",
            },
        )
        yield started


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.delenv("OTTLA_BOOTSTRAP_SERVERS", raising=False)
    with s3_server() as address:
        create_bucket(address, "tier")
        for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": address}.items():
            monkeypatch.setenv(name, value)
        with tiered_cluster(tmp_path, URL) as started:
            yield started


def write(cluster: Cluster) -> list[bytes]:
    """Write transactions, every third aborted; return the values of the others."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "writer"}
    )
    producer.init_transactions(DEADLINE_S)
    committed = []
    for number in range(ROUNDS):
        values = [b"%05d-%d" % (number, each) + b"x" * 500 for each in range(8)]
        producer.begin_transaction()
        for value in values:
            producer.produce(TOPIC, value, partition=0)
        if number % 3 == 2:
            assert producer.flush(DEADLINE_S) == 0
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)
            committed += values
    return committed


def consume(cluster: Cluster) -> list[bytes]:
    """Return the values of all committed records."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    found = []
    while True:
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        error = message.error()
        if error is None:
            value = message.value()
            assert isinstance(value, bytes)
            found.append(value)
        elif error.code() == KafkaError._PARTITION_EOF:
            consumer.close()
            return found
        else:
            assert error.retriable(), error


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_tiered_topic_on_s3(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["--bootstrap-server", cluster.bootstrap_servers]

    def run(command: str, *more: str, code: int = 0) -> Any:
        assert main(["tier", command, TOPIC, "--json", *more]) == code
        (partition,) = json.loads(capsys.readouterr().out)["partitions"]
        return partition

    committed = write(cluster)

    def is_settled() -> bool:
        """Return True when the closed segments are copied, and most of them are not local."""
        found = run("describe", *at)
        remote, local = found["remote"], found["local"]
        if remote["end_offset"] != local["latest_tiered_offset"]:
            return False
        return bool(local["end_offset"] - remote["end_offset"] <= 45 and local["start_offset"])

    def show_topic() -> Any:
        """Print the topic, and return what the tier says of it before and after."""
        while True:  # retention may delete local segments in between
            before = run("describe", *at)
            assert main(["topics", "describe", TOPIC, *at]) == 0
            rows.append(capsys.readouterr().out.splitlines()[-1].split())
            if run("describe", *at) == before:
                return before

    rows: list[list[str]] = []
    eventually(is_settled)
    described = show_topic()
    remote, local = described["remote"], described["local"]
    assert len(remote["segments"]) > 3
    assert remote["start_offset"] == local["log_start_offset"] == 0
    assert (
        0 < local["start_offset"] <= remote["end_offset"] + 1 == local["latest_tiered_offset"] + 1
    )
    assert local["end_offset"] == ROUNDS * 9 - 1
    assert 0 < local["bytes"] < remote["bytes"]

    row = rows[-1]
    assert row[5:7] == ["0", str(ROUNDS * 9)]
    assert row[-4:-2] == [str(remote["end_offset"]), str(local["start_offset"])]
    logs_bytes = sum(segment["objects"]["log"] for segment in remote["segments"])
    assert " ".join(row[-2:]) == size_text(logs_bytes)
    assert main(["log-dirs", "--topic", TOPIC, "--json", *at]) == 0
    (directory,) = json.loads(capsys.readouterr().out)
    assert directory["logs"][0]["remote_size"] == logs_bytes

    assert consume(cluster) == committed
    for command in ("check", "verify"):
        for where in (at, ["--tier", URL], ["--tier", URL, *at]):
            found = run(command, *where)
            assert (found["problems"], found["notes"]) == ([], [])

    partition = open_topic(URL, TOPIC).partition(0)
    stable = partition.stable_offset
    values = [record.value for record in partition.records(read_committed=True)]
    assert len(values) > len(committed) / 2
    assert values == committed[: len(values)]
    assert [r.offset for r in partition.records(end_offset=8)] == list(range(8))
    assert stable == partition.next_offset

    store = open_blocking_store(URL)
    logs = [each.key for each in all_objects(store, "") if each.key.endswith(".log")]
    store.delete(logs[1])
    (found,) = run("check", *at, code=1)["problems"]
    assert found == {"object": logs[1].rpartition("/")[2], "text": "the object is missing"}


def test_a_store_that_is_away_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OTTLA_BOOTSTRAP_SERVERS", raising=False)
    cold, away = tmp_path / "cold", tmp_path / "away"
    with tiered_cluster(tmp_path, f"file:{cold}") as cluster:
        at = ["--bootstrap-server", cluster.bootstrap_servers]

        def run(command: str) -> Any:
            assert main(["tier", command, TOPIC, "--json", *at]) == 0
            (partition,) = json.loads(capsys.readouterr().out)["partitions"]
            return partition

        def is_copied() -> bool:
            found = run("describe")
            end = found["remote"]["end_offset"] or 0
            return bool(found["local"]["end_offset"] - end <= 45 and found["local"]["start_offset"])

        committed = write(cluster)
        eventually(is_copied)
        cold.rename(away)
        assert main(["tier", "check", TOPIC, *at]) == 1
        assert "there is no such directory" in capsys.readouterr().err
        committed += write(cluster)
        away.rename(cold)
        assert run("check")["problems"] == []  # nothing that is not remote was deleted
        eventually(is_copied)
        assert consume(cluster) == committed
        assert run("verify")["problems"] == []


def test_brokers_without_a_tier(capsys: pytest.CaptureFixture[str]) -> None:
    with Cluster(memory=True) as started:
        started.create_topic("plain")
        at = ["--bootstrap-server", started.bootstrap_servers]
        assert main(["tier", "describe", "plain", *at]) == 1
        assert "the brokers have no remote tier" in capsys.readouterr().err
        assert main(["tier", "describe", "none", *at]) == 1
        assert "none" in capsys.readouterr().err
