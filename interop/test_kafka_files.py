"""Kafka's tools read the files Ottla wrote, and Ottla goes on with the files of Kafka."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource, NewTopic

from ottla.log.segment.txn_index import read_txn_index
from ottla.metadata.records import TopicRecord
from ottla.metadata.snapshot import decode_snapshot
from ottla.server.os_files import OsFiles
from ottla.testing import Cluster

Run = Callable[..., str]
DUMP = "org.apache.kafka.tools.DumpLogSegments"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 300


def write_topic(data_dir: Path) -> int:
    """Write a topic of small segments with every codec, as an idempotent producer."""
    with Cluster(data_dir=data_dir) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        settings = {"internal.segment.bytes": "8000", "index.interval.bytes": "100"}
        admin.create_topics([NewTopic("t", 1, 1, config=settings)])["t"].result(30)
        for codec in CODECS:
            producer = Producer(
                {
                    "bootstrap.servers": cluster.bootstrap_servers,
                    "compression.type": codec,
                    "enable.idempotence": True,
                    "batch.num.messages": 20,
                }
            )
            for number in range(RECORDS):
                producer.produce(
                    "t", b"%d" % number * 20, key=b"k%d" % number, headers={"codec": codec}
                )
            assert producer.flush(30) == 0
    return RECORDS * len(CODECS)


def test_kafka_reads_our_segments_indexes_and_snapshots(tmp_path: Path, kafka_tool: Run) -> None:
    expected = write_topic(tmp_path / "data")
    directory = tmp_path / "data" / "t-0"
    segments = sorted(directory.glob("*.log"))
    assert len(segments) > 3
    out = kafka_tool(
        DUMP, "--deep-iteration", "--print-data-log", "--files", ",".join(map(str, segments))
    )
    assert len(re.findall(r"^\| offset: ", out, re.MULTILINE)) == expected
    assert "isvalid: false" not in out
    indexes = sorted([*directory.glob("*.index"), *directory.glob("*.timeindex")])
    out = kafka_tool(DUMP, "--index-sanity-check", "--files", ",".join(map(str, indexes)))
    assert out.count("passed sanity check") == len(indexes)
    out = kafka_tool(DUMP, "--verify-index-only", "--files", ",".join(map(str, indexes)))
    assert "Mismatches" not in out
    assert "out of order" not in out.lower()
    snapshots = sorted(directory.glob("*.snapshot"))
    out = kafka_tool(DUMP, "--files", ",".join(map(str, snapshots)))
    assert "producerId: " in out


def test_kafka_decodes_our_metadata_log(tmp_path: Path, kafka_tool: Run) -> None:
    write_topic(tmp_path / "data")
    segment = next((tmp_path / "data" / "__cluster_metadata-0").glob("*.log"))
    out = kafka_tool(DUMP, "--cluster-metadata-decoder", "--files", str(segment))
    for record in (
        "FEATURE_LEVEL_RECORD",
        "REGISTER_BROKER_RECORD",
        "TOPIC_RECORD",
        "CONFIG_RECORD",
    ):
        assert record in out
    assert "Could not decode" not in out
    assert '"name":"t"' in out


def test_ottla_goes_on_where_kafka_stopped(tmp_path: Path, kafka_tool: Run) -> None:
    """A Kafka node's whole data directory, metadata log included, served by Ottla."""
    from harness.systems import Kafka

    kafka = Kafka(None).new_broker(tmp_path / "kafka")
    kafka.start()
    try:
        at = f"127.0.0.1:{kafka.port}"
        admin = AdminClient({"bootstrap.servers": at})
        settings = {"retention.ms": "99999999"}
        admin.create_topics([NewTopic("t", 2, 1, config=settings)])["t"].result(30)
        produce_numbers(at, 0, RECORDS)
    finally:
        kafka.stop()
    with Cluster(data_dir=tmp_path / "kafka" / "data") as cluster:
        at = cluster.bootstrap_servers
        produce_numbers(at, RECORDS, 2 * RECORDS)
        assert consume_numbers(at, 2 * RECORDS) == list(range(2 * RECORDS))
        admin = AdminClient({"bootstrap.servers": at})
        resource = ConfigResource(ConfigResource.Type.TOPIC, "t")
        described = admin.describe_configs([resource])[resource].result(30)
        assert described["retention.ms"].value == "99999999"


def test_kafka_goes_on_where_ottla_stopped(tmp_path: Path, kafka_tool: Run) -> None:
    """The other way round: what Ottla wrote, metadata log, producer state and groups included."""
    from harness.systems import Kafka

    kafka = Kafka(None).new_broker(tmp_path / "kafka")
    data_dir = tmp_path / "kafka" / "data"
    shutil.rmtree(data_dir)  # what Kafka has formatted
    # Ottla's registration must run out before Kafka lets itself in under the same id.
    settings_file = tmp_path / "kafka" / "server.properties"
    with settings_file.open("a") as file:
        file.write("broker.session.timeout.ms=3000\nbroker.heartbeat.interval.ms=500\n")
    with Cluster(data_dir=data_dir) as cluster:
        at = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": at})
        settings = {"retention.ms": "99999999", "internal.segment.bytes": "2000"}
        admin.create_topics([NewTopic("t", 2, 1, config=settings)])["t"].result(30)
        produce_numbers(at, 0, RECORDS)
        commit(at, TopicPartition("t", 1, 77))
    kafka.start()
    try:
        at = f"127.0.0.1:{kafka.port}"
        produce_numbers(at, RECORDS, 2 * RECORDS)
        assert consume_numbers(at, 2 * RECORDS) == list(range(2 * RECORDS))
        assert committed(at, TopicPartition("t", 1)) == 77
        admin = AdminClient({"bootstrap.servers": at})
        resource = ConfigResource(ConfigResource.Type.TOPIC, "t")
        described = admin.describe_configs([resource])[resource].result(30)
        assert described["retention.ms"].value == "99999999"
    finally:
        kafka.stop()


SNAPSHOTS = {
    "metadata.log.max.record.bytes.between.snapshots": "1",
    "metadata.log.segment.ms": "1",
    "metadata.max.retention.bytes": "1",
}
"""A snapshot with every change, and no record kept that a snapshot stands for."""


def checkpoints(data_dir: Path) -> list[Path]:
    """Return the snapshots of the metadata, but for the empty one that formatting writes."""
    found = sorted((data_dir / "__cluster_metadata-0").glob("*.checkpoint"))
    return [path for path in found if not path.name.startswith("0" * 20)]


def write_snapshot(data_dir: Path) -> None:
    """Let Ottla write a topic, and a snapshot in place of the old metadata records."""
    with Cluster(data_dir=data_dir, properties=SNAPSHOTS) as cluster:
        at = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": at})
        settings = {"retention.ms": "99999999"}
        admin.create_topics([NewTopic("t", 2, 1, config=settings)])["t"].result(30)
        produce_numbers(at, 0, RECORDS)
        for number in range(5):
            admin.create_topics([NewTopic(f"t{number}", 1, 1)])[f"t{number}"].result(30)
    assert checkpoints(data_dir)
    first = min((data_dir / "__cluster_metadata-0").glob("*.log"))
    assert int(first.stem) > 0


def test_kafka_decodes_our_metadata_snapshot(tmp_path: Path, kafka_tool: Run) -> None:
    write_snapshot(tmp_path / "data")
    newest = checkpoints(tmp_path / "data")[-1]
    out = kafka_tool(DUMP, "--cluster-metadata-decoder", "--files", str(newest))
    for record in (
        "SnapshotHeader",
        "REGISTER_BROKER_RECORD",
        "PARTITION_RECORD",
        "SnapshotFooter",
    ):
        assert record in out
    assert "Could not decode" not in out
    assert '"name":"t"' in out


def test_kafka_starts_from_our_metadata_snapshot(tmp_path: Path, kafka_tool: Run) -> None:
    from harness.systems import Kafka

    kafka = Kafka(None).new_broker(tmp_path / "kafka")
    data_dir = tmp_path / "kafka" / "data"
    shutil.rmtree(data_dir)
    with (tmp_path / "kafka" / "server.properties").open("a") as file:
        file.write("broker.session.timeout.ms=3000\nbroker.heartbeat.interval.ms=500\n")
    write_snapshot(data_dir)
    kafka.start()
    try:
        at = f"127.0.0.1:{kafka.port}"
        assert consume_numbers(at, RECORDS) == list(range(RECORDS))
        described = describe(at)
        assert described["retention.ms"].value == "99999999"
    finally:
        kafka.stop()


def test_ottla_starts_from_kafkas_metadata_snapshot(tmp_path: Path, kafka_tool: Run) -> None:
    from harness.systems import Kafka

    kafka = Kafka(None).new_broker(tmp_path / "kafka")
    data_dir = tmp_path / "kafka" / "data"
    with (tmp_path / "kafka" / "server.properties").open("a") as file:
        file.write("metadata.log.max.record.bytes.between.snapshots=100\n")
    kafka.start()
    try:
        at = f"127.0.0.1:{kafka.port}"
        admin = AdminClient({"bootstrap.servers": at})
        settings = {"retention.ms": "99999999"}
        admin.create_topics([NewTopic("t", 2, 1, config=settings)])["t"].result(30)
        produce_numbers(at, 0, RECORDS)
        deadline = time.monotonic() + 30
        while not has_topic(checkpoints(data_dir)) and time.monotonic() < deadline:
            time.sleep(0.5)
    finally:
        kafka.stop()
    assert has_topic(checkpoints(data_dir))
    with Cluster(data_dir=data_dir) as cluster:
        at = cluster.bootstrap_servers
        assert consume_numbers(at, RECORDS) == list(range(RECORDS))
        assert describe(at)["retention.ms"].value == "99999999"


def has_topic(snapshots: list[Path]) -> bool:
    """Return whether the newest snapshot, as Ottla reads it, has the topic."""
    if not snapshots:
        return False
    file = OsFiles().open(str(snapshots[-1]))
    return any(isinstance(r, TopicRecord) and r.name == "t" for r in decode_snapshot(file))


def describe(bootstrap_servers: str) -> dict[str, ConfigEntry]:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    resource = ConfigResource(ConfigResource.Type.TOPIC, "t")
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(30)
    return found


def commit(bootstrap_servers: str, position: TopicPartition) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "g"})
    consumer.commit(offsets=[position], asynchronous=False)
    consumer.close()


def committed(bootstrap_servers: str, partition: TopicPartition) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "g"})
    (found,) = consumer.committed([partition], timeout=30)
    consumer.close()
    return int(found.offset)


def produce_numbers(bootstrap_servers: str, start: int, stop: int) -> None:
    settings = {"compression.type": "lz4", "enable.idempotence": True, "batch.num.messages": 20}
    producer = Producer({"bootstrap.servers": bootstrap_servers, **settings})
    for number in range(start, stop):
        producer.produce("t", b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0


def consume_numbers(bootstrap_servers: str, count: int) -> list[int]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "g", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition("t", index, OFFSET_BEGINNING) for index in range(2)])
    numbers: list[int] = []
    deadline = time.monotonic() + 30
    while len(numbers) < count and time.monotonic() < deadline:
        numbers += [int(message.value() or b"") for message in consumer.consume(1000, timeout=1)]
    consumer.close()
    return sorted(numbers)


def write_transactions(at: str, names: str) -> None:
    """Write transactions: those with small letters are committed, those with capitals aborted."""
    for name in names:
        producer = Producer({"bootstrap.servers": at, "transactional.id": f"id-{name.lower()}"})
        producer.init_transactions(60)
        producer.begin_transaction()
        for number in range(20):
            producer.produce("t", f"{name}{number}".encode() * 20, partition=0)
        assert producer.flush(60) == 0
        if name.islower():
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)


def committed_names(at: str) -> str:
    """Return the transactions that a consumer with read_committed sees, in their order."""
    consumer = Consumer(
        {
            "bootstrap.servers": at,
            "group.id": "unused",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    found = ""
    while True:
        message = consumer.poll(60)
        assert message is not None
        if message.error():
            consumer.close()
            return found
        name = (message.value() or b"?")[:1].decode()
        if not found.endswith(name):
            found += name


def test_kafka_reads_our_transactions(tmp_path: Path, kafka_tool: Run) -> None:
    settings = {"internal.segment.bytes": "6000", "index.interval.bytes": "100"}
    with Cluster(data_dir=tmp_path / "data") as cluster:
        at = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": at})
        admin.create_topics([NewTopic("t", 1, 1, config=settings)])["t"].result(30)
        write_transactions(at, "abCdEFgh")
        assert committed_names(at) == "abdgh"
        open_one = Producer({"bootstrap.servers": at, "transactional.id": "open"})
        open_one.init_transactions(60)
        open_one.begin_transaction()
        open_one.produce("t", b"open", partition=0)
        assert open_one.flush(60) == 0
    directory = tmp_path / "data" / "t-0"
    indexes = sorted(directory.glob("*.txnindex"))
    assert indexes
    out = kafka_tool(DUMP, "--files", ",".join(map(str, indexes)))
    ours = [each for path in indexes for each in read_txn_index(OsFiles(), str(path))]
    assert len(ours) == 3
    for each in ours:
        assert (
            f"version: 0 producerId: {each.producer_id} firstOffset: {each.first_offset} "
            f"lastOffset: {each.last_offset} lastStableOffset: {each.last_stable_offset}" in out
        )
    segments = sorted(directory.glob("*.log"))
    out = kafka_tool(DUMP, "--deep-iteration", "--files", ",".join(map(str, segments)))
    assert out.count("endTxnMarker: COMMIT") == 5
    assert out.count("endTxnMarker: ABORT") == 3
    newest = max(directory.glob("*.snapshot"))
    out = kafka_tool(DUMP, "--files", str(newest))
    assert len(re.findall(r"currentTxnFirstOffset: (?:Some\(|OptionalLong\[)\d+", out)) == 1
    state = sorted((tmp_path / "data").glob("__transaction_state-*/*.log"))
    out = kafka_tool(DUMP, "--transaction-log-decoder", "--files", ",".join(map(str, state)))
    assert "Failed" not in out
    assert "open" in out


def test_transactions_go_on_in_kafka_and_come_back(tmp_path: Path, kafka_tool: Run) -> None:
    """A data directory with transactions is served by Ottla, by Kafka, and by Ottla again."""
    from harness.systems import Kafka

    kafka = Kafka(None).new_broker(tmp_path / "kafka")
    data_dir = tmp_path / "kafka" / "data"
    shutil.rmtree(data_dir)
    settings_file = tmp_path / "kafka" / "server.properties"
    with settings_file.open("a") as file:
        file.write(
            "broker.session.timeout.ms=3000\nbroker.heartbeat.interval.ms=500\n"
            "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
        )
    with Cluster(data_dir=data_dir) as cluster:
        at = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": at})
        settings = {"internal.segment.bytes": "6000"}
        admin.create_topics([NewTopic("t", 1, 1, config=settings)])["t"].result(30)
        write_transactions(at, "aBc")
    kafka.start()
    try:
        at = f"127.0.0.1:{kafka.port}"
        assert committed_names(at) == "ac"
        write_transactions(at, "aDeBf")
        assert committed_names(at) == "acaef"
    finally:
        kafka.stop()
    with Cluster(data_dir=data_dir) as cluster:
        at = cluster.bootstrap_servers
        assert committed_names(at) == "acaef"
        write_transactions(at, "Abd")
        assert committed_names(at) == "acaefbd"
