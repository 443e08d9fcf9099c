"""Broker settings that change what clients see; each test starts a broker with its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.harness.batches import batch_of
from tests.harness.deadline import eventually
from tests.harness.raw import Answer, RawConnection
from tests.harness.topics import create_topic, fetch_fields, produce

if TYPE_CHECKING:
    from ottla.testing import Cluster

TOPIC_DELETION_DISABLED = 73
FETCH_SESSION_ID_NOT_FOUND = 70
StartCluster = Callable[..., "Cluster"]


def earliest(raw: RawConnection, topic: str) -> int:
    answer = raw.request(
        "list_offsets",
        7,
        replica_id=-1,
        topics=[{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -2}]}],
    )
    return int(answer.topics[0].partitions[0].offset)


def fill(raw: RawConnection, topic: str, megabytes: int, timestamp_ms: int | None = None) -> None:
    for _ in range(megabytes * 10):
        batch = batch_of([b"x" * 104_000], timestamp_ms=timestamp_ms)
        assert produce(raw, topic, batch).error_code == 0


def test_retention_by_size(start_cluster: StartCluster) -> None:
    cluster = start_cluster(
        {"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "50"}
    )
    create_topic(
        cluster.bootstrap_servers,
        "t",
        1,
        {"segment.bytes": "1048576", "retention.bytes": "2097152", "file.delete.delay.ms": "0"},
    )
    with RawConnection(cluster.bootstrap_servers) as raw:
        fill(raw, "t", 6)
        eventually(lambda: 30 <= earliest(raw, "t") <= 45, "about two megabytes are left")
        assert produce(raw, "t", batch_of([b"v"])).base_offset == 60


def test_retention_by_time(start_cluster: StartCluster) -> None:
    cluster = start_cluster(
        {"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "50"}
    )
    create_topic(
        cluster.bootstrap_servers, "t", 1, {"segment.bytes": "1048576", "retention.ms": "60000"}
    )
    with RawConnection(cluster.bootstrap_servers) as raw:
        fill(raw, "t", 3, timestamp_ms=1_000_000_000_000)
        assert produce(raw, "t", batch_of([b"new"] * 2)).base_offset == 30
        eventually(lambda: earliest(raw, "t") >= 18, "the old closed segments are gone")


def test_deletion_can_be_forbidden(start_cluster: StartCluster) -> None:
    cluster = start_cluster({"delete.topic.enable": "false"}, memory=True)
    create_topic(cluster.bootstrap_servers, "t")
    with RawConnection(cluster.bootstrap_servers) as raw:
        (answer,) = raw.request("delete_topics", 5, topic_names=["t"], timeout=1_000).responses
        assert answer.error_code == TOPIC_DELETION_DISABLED
        assert [each.name for each in raw.request("metadata", 12, topics=None).topics] == ["t"]


def test_partitions_are_spread_over_directories(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    cluster = start_cluster({"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"})
    create_topic(cluster.bootstrap_servers, "t", 6)
    with RawConnection(cluster.bootstrap_servers) as raw:
        for partition in range(6):
            assert produce(raw, "t", batch_of([b"v"]), partition=partition).error_code == 0
        answer = raw.request("describe_log_dirs", 4, topics=None)
        counts = {
            directory.log_dir: sum(len(topic.partitions) for topic in directory.topics)
            for directory in answer.results
        }
    assert set(counts) == {str(tmp_path / "a"), str(tmp_path / "b")}
    assert all(count >= 2 for count in counts.values()), counts
    assert all(list((tmp_path / name).glob("t-*")) for name in ("a", "b"))
    cluster.restart()
    with RawConnection(cluster.bootstrap_servers) as raw:
        for partition in range(6):
            assert produce(raw, "t", batch_of([b"v"]), partition=partition).base_offset == 1


def test_idle_producers_are_forgotten(start_cluster: StartCluster) -> None:
    cluster = start_cluster(
        {"producer.id.expiration.ms": "300", "producer.id.expiration.check.interval.ms": "100"},
        memory=True,
    )
    create_topic(cluster.bootstrap_servers, "t")
    with RawConnection(cluster.bootstrap_servers) as raw:
        batch = batch_of([b"v"], producer_id=77, producer_epoch=0, base_sequence=0)
        assert produce(raw, "t", batch).error_code == 0

        def active() -> list[int]:
            answer = raw.request(
                "describe_producers", 0, topics=[{"name": "t", "partition_indexes": [0]}]
            )
            return [each.producer_id for each in answer.topics[0].partitions[0].active_producers]

        assert active() == [77]
        eventually(lambda: active() == [], "the producer is forgotten")


def open_session(raw: RawConnection, partitions: int) -> Answer:
    return raw.request(
        "fetch", 12, **fetch_fields({"t": dict.fromkeys(range(partitions), 0)}, session_epoch=0)
    )


def test_the_session_cache_is_bounded(start_cluster: StartCluster) -> None:
    cluster = start_cluster({"max.incremental.fetch.session.cache.slots": "2"}, memory=True)
    create_topic(cluster.bootstrap_servers, "t", 3)
    with RawConnection(cluster.bootstrap_servers) as raw:
        first, second = open_session(raw, 1), open_session(raw, 1)
        assert first.session_id > 0
        assert second.session_id > 0
        assert open_session(raw, 1).session_id == 0, "no slot, no session; the fetch is answered"
        for session in (first, second):
            answer = raw.request(
                "fetch", 12, **fetch_fields({}, session_id=session.session_id, session_epoch=1)
            )
            assert answer.error_code == 0


def test_no_sessions_at_all(start_cluster: StartCluster) -> None:
    cluster = start_cluster({"max.incremental.fetch.session.cache.slots": "0"}, memory=True)
    create_topic(cluster.bootstrap_servers, "t")
    with RawConnection(cluster.bootstrap_servers) as raw:
        produce(raw, "t", batch_of([b"v"]))
        answer = open_session(raw, 1)
        assert (answer.error_code, answer.session_id) == (0, 0)
        assert answer.responses[0].partitions[0].records
