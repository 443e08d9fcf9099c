"""A compacted topic on a real broker: cleaned by a helper process, on demand and by itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.main import main
from ottla.testing import Cluster

KEYS, ROUNDS = 50, 40


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(data_dir=tmp_path / "data") as started:
        yield started


def create(cluster: Cluster, name: str, settings: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(name, 2, 1, config=settings)])[name].result(60)


def fill(cluster: Cluster, topic: str) -> dict[bytes, bytes]:
    """Write each key many times; return the last values."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 1})
    table = {}
    for number in range(KEYS * ROUNDS):
        key, value = b"key-%d" % (number % KEYS), b"%d" % number
        producer.produce(topic, value, key=key, partition=number % KEYS % 2)
        table[key] = value
    assert producer.flush(60) == 0
    return table


def read(cluster: Cluster, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Return all records of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reader",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in (0, 1)])
    found: list[tuple[bytes | None, bytes | None]] = []
    ends = 0
    while ends < 2:
        message = consumer.poll(60)
        assert message is not None
        if message.error() is not None:
            ends += 1
        else:
            found.append((message.key(), message.value()))
    consumer.close()
    return found


def test_a_topic_is_compacted_on_demand(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    create(cluster, "compacted", {"cleanup.policy": "compact"})
    table = fill(cluster, "compacted")
    assert len(read(cluster, "compacted")) == KEYS * ROUNDS
    at = ["--bootstrap-server", cluster.bootstrap_servers]
    assert main(["compact", "compacted", "--settle", "60", "--json", *at]) == 0
    replicas = json.loads(capsys.readouterr().out)["replicas"]
    assert sum(each["after"] for each in replicas) < sum(each["before"] for each in replicas) / 5
    found = read(cluster, "compacted")
    assert len(found) == KEYS
    assert dict(found) == table
    assert main(["configs", "describe", "--topic", "compacted", *at]) == 0
    assert "max.compaction.lag.ms=1\n" not in capsys.readouterr().out


def test_other_topics_are_refused(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    create(cluster, "plain", {})
    assert main(["compact", "plain", "--bootstrap-server", cluster.bootstrap_servers]) == 1
    assert "only compacted topics" in capsys.readouterr().err


def test_a_log_that_cannot_be_cleaned_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One partition is damaged, one has an open transaction: the command said that all was well."""
    with Cluster(data_dir=tmp_path / "data") as cluster:
        create(cluster, "compacted", {"cleanup.policy": "compact"})
        fill(cluster, "compacted")
        cluster.stop()
        path = tmp_path / "data" / "compacted-0" / f"{0:020d}.log"
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 255
        path.write_bytes(content)
        cluster.start()
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "open"}
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("compacted", b"value", key=b"k", partition=1)
        assert producer.flush(60) == 0
        at = ["--bootstrap-server", cluster.bootstrap_servers]
        assert main(["compact", "compacted", "--timeout", "3", "--json", *at]) == 1
        printed = capsys.readouterr()
        assert json.loads(printed.out)["finished"] is False
        assert "broker 1 does not clean compacted-0: " in printed.err
        assert "has cleaned compacted-1 up to offset 0 after 3 s" in printed.err
        producer.abort_transaction(60)
        assert main(["compact", "compacted", "--timeout", "60", *at]) == 1
        assert "compacted-1" not in capsys.readouterr().err


def test_a_broker_without_compacted_work_has_no_helper(tmp_path: Path) -> None:
    before = helpers()
    with Cluster(data_dir=tmp_path / "data") as cluster:
        create(cluster, "plain", {})
        fill(cluster, "plain")
        assert helpers() <= before


def helpers() -> set[int]:
    """Return the helper processes of brokers in this process."""
    children = psutil.Process().children(recursive=True)
    return {each.pid for each in children if "ottla.server.helper_main" in each.cmdline()}


def test_sizes_and_the_dirty_share_are_shown(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    create(cluster, "compacted", {"cleanup.policy": "compact"})
    create(cluster, "plain", {})
    fill(cluster, "compacted")
    fill(cluster, "plain")
    at = ["--bootstrap-server", cluster.bootstrap_servers]
    assert main(["compact", "compacted", "--settle", "60", *at]) == 0
    capsys.readouterr()
    assert main(["log-dirs", "--topic", "compacted", "--topic", "plain", "--json", *at]) == 0
    (directory,) = json.loads(capsys.readouterr().out)
    assert directory["error"] is None
    assert directory["total_bytes"] >= directory["usable_bytes"] > 0
    logs = {(log["topic"], log["partition"]): log for log in directory["logs"]}
    assert set(logs) == {("compacted", 0), ("compacted", 1), ("plain", 0), ("plain", 1)}
    assert logs["plain", 0]["dirty_ratio"] is None
    assert logs["plain", 0]["size"] > logs["compacted", 0]["size"] > 0
    assert logs["compacted", 0]["dirty_ratio"] == 0
    assert logs["compacted", 0]["last_clean_ms"] > 1_600_000_000_000
    assert main(["log-dirs", *at]) == 0
    assert "0%" in capsys.readouterr().out
    assert main(["topics", "describe", "compacted", "--json", *at]) == 0
    partition = json.loads(capsys.readouterr().out)[0]["partitions"][0]
    assert partition["size"] == logs["compacted", 0]["size"]
    assert partition["last_clean_ms"] == logs["compacted", 0]["last_clean_ms"]
    assert main(["topics", "describe", "compacted", *at]) == 0
    assert "last clean" in capsys.readouterr().out
    assert main(["log-dirs", "--broker", "77", *at]) == 1
    assert "there is no broker 77" in capsys.readouterr().err


def test_a_key_is_erased_on_every_replica(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Cluster(data_dir=tmp_path / "data", brokers=2) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        config = {"cleanup.policy": "compact", "file.delete.delay.ms": "0"}
        admin.create_topics([NewTopic("users", 2, 2, config=config)])["users"].result(60)
        secret = fill(cluster, "users")[b"key-7"]
        at = ["--bootstrap-server", cluster.bootstrap_servers]
        assert main(["erase", "--topic", "users", "--key", "key-7", "--json", *at]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["erased"] is True
        assert [each["partition"] for each in report["tombstones"]] == [1]
        assert {each["broker"] for each in report["replicas"]} == {1, 2}
        for replica in report["replicas"]:
            segments = replica["segments"]
            assert len(segments) >= 2, "the active segment was rolled"
            assert sum(each["records"] for each in segments) == KEYS // 2
            assert not any(each["values"] for each in segments)
            assert sum(len(each["tombstones"]) for each in segments) == 1
        assert dict(read(cluster, "users"))[b"key-7"] is None
        assert all(value != secret for _, value in read(cluster, "users"))
        # Again: there is nothing left to do.
        assert main(["erase", "--topic", "users", "--key", "6b65792d37", "--hex", *at]) == 0
        assert "nothing was written" in capsys.readouterr().out
        create(cluster, "plain", {})
        assert main(["erase", "--topic", "plain", "--key", "x", *at]) == 1
        assert "only compacted topics" in capsys.readouterr().err


def test_what_a_broker_that_is_away_has_is_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The key was erased in one partition, and a replica of the other one was forgotten."""
    with Cluster(data_dir=tmp_path / "data", brokers=3) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        config = {"cleanup.policy": "compact"}
        topic = NewTopic("users", 2, replica_assignment=[[1, 2], [2, 3]], config=config)
        admin.create_topics([topic])["users"].result(60)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        producer.produce("users", b"value", key=b"k", partition=0)
        assert producer.flush(60) == 0
        cluster.stop(3)
        at = ["--bootstrap-server", cluster.bootstrap_servers]
        assert main(["erase", "--topic", "users", "--key", "k", "--json", *at]) == 1
        printed = capsys.readouterr()
        report = json.loads(printed.out)
        assert report["erased"] is False
        assert [each["partition"] for each in report["tombstones"]] == [0]
        replicas = {(r["partition"], r["broker"]): r["error"] for r in report["replicas"]}
        assert replicas.keys() == {(0, 1), (0, 2), (1, 3)}
        assert [each for each, error in replicas.items() if error] == [(1, 3)]
        assert "users-1 on broker 3 is not known" in printed.err
