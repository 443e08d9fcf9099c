"""Kafka's log cleaner and Ottla's: the same log is left, and each goes on with what the other left.

The input is written by Kafka with its cleaner off: all codecs, tombstones, committed and aborted
transactions, in many small segments. Copies of its directory are cleaned by both.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.records.batch import parse_header
from ottla.records.record import records_of
from ottla.testing import Cluster

Run = Callable[..., str]
TOPIC = "c"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SETTINGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "9000",
    "min.cleanable.dirty.ratio": "0.01",
}
CLEANER_ON = {"log.cleaner.backoff.ms": "200"}
ONE_BROKER = {
    "broker.session.timeout.ms": "3000",  # an earlier registration must run out
    "broker.heartbeat.interval.ms": "500",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
}
TIMEOUT_S = 120


class Left(NamedTuple):
    """A batch that is left after cleaning."""

    base_offset: int
    last_offset: int
    producer_id: int
    base_sequence: int
    is_control: bool
    is_transactional: bool
    has_horizon: bool
    records: tuple[tuple[int, bytes | None, bytes | None, int], ...]


def batches_in(directory: Path) -> Iterator[Left]:
    """Yield the batches of a partition from its files, without the active segment."""
    for path in sorted(directory.glob("*.log"))[:-1]:
        data, position = path.read_bytes(), 0
        while position < len(data):
            header = parse_header(data, position)
            records = records_of(data[position : header.end])
            yield Left(
                header.base_offset,
                header.last_offset,
                header.producer_id,
                header.base_sequence,
                header.is_control,
                header.is_transactional,
                header.delete_horizon_ms is not None,
                tuple((r.offset, r.key, r.value, r.timestamp) for r in records),
            )
            position = header.end


def new_kafka(directory: Path, more: dict[str, str]) -> Any:
    from harness.systems import Kafka

    return Kafka(None).new_broker(directory, ONE_BROKER | more)


def produce(bootstrap: str) -> None:
    """Write keys again and again, delete some, and do so in transactions, too."""
    for number, codec in enumerate(CODECS * 2):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "enable.idempotence": True,
                "batch.num.messages": 7,
            }
        )
        for index in range(300):
            key = b"k%d" % (index % (20 + number))
            value = None if index % 11 == number else b"%d-%d" % (number, index) * 8
            producer.produce(TOPIC, value, key=key, partition=0)
        assert producer.flush(60) == 0
    for number in range(8):
        producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"x{number % 3}", "linger.ms": 1}
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        for index in range(6):
            producer.produce(TOPIC, b"%d" % number, key=b"t%d" % (index % 4), partition=0)
        producer.flush(60)
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    filler = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 5})
    for index in range(150):
        filler.produce(TOPIC, b"f" * 200, key=b"filler%d" % (index % 9), partition=0)
    assert filler.flush(60) == 0


def table_of(bootstrap: str) -> dict[bytes, tuple[int, bytes | None]]:
    """Return what a reader of committed records has for each key in the end, by offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    table: dict[bytes, tuple[int, bytes | None]] = {}
    while True:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error() is not None:
            break
        table[message.key() or b""] = message.offset() or 0, message.value()
    consumer.close()
    return {key: entry for key, entry in table.items() if entry[1] is not None}


def wait_until_clean(data_dir: Path) -> None:
    """Wait until the cleaner has reached the active segment."""
    partition = data_dir / f"{TOPIC}-0"
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        active = int(sorted(partition.glob("*.log"))[-1].stem)
        checkpoint = data_dir / "cleaner-offset-checkpoint"
        lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
        found = {tuple(line.split()[:2]): int(line.split()[2]) for line in lines}
        if found.get((TOPIC, "0"), 0) >= active and not list(partition.glob("*.cleaned")):
            return
        time.sleep(0.1)
    raise AssertionError("it was not cleaned")


def clean_with_kafka(directory: Path, source: Path) -> Path:
    kafka = new_kafka(directory, CLEANER_ON)
    data_dir = directory / "data"
    shutil.rmtree(data_dir)
    shutil.copytree(source, data_dir)
    kafka.start()
    try:
        wait_until_clean(data_dir)
    finally:
        kafka.stop()
    return data_dir


def clean_with_ottla(data_dir: Path, source: Path) -> Path:
    shutil.copytree(source, data_dir)
    with Cluster(data_dir=data_dir, properties=CLEANER_ON):
        wait_until_clean(data_dir)
    return data_dir


@pytest.fixture(scope="module")
def written(
    tmp_path_factory: pytest.TempPathFactory, kafka_tool: Run
) -> tuple[Path, dict[bytes, tuple[int, bytes | None]]]:
    """Return the data directory of a Kafka whose cleaner was off, and what a reader of it has."""
    directory = tmp_path_factory.mktemp("input") / "kafka"
    kafka = new_kafka(directory, {"log.cleaner.enable": "false"})
    kafka.start()
    try:
        at = f"127.0.0.1:{kafka.port}"
        admin = AdminClient({"bootstrap.servers": at})
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=SETTINGS)])[TOPIC].result(60)
        produce(at)
        table = table_of(at)
    finally:
        kafka.stop()
    return directory / "data", table


@pytest.mark.timeout(900)
def test_both_leave_the_same_records(
    written: tuple[Path, dict[bytes, tuple[int, bytes | None]]], tmp_path: Path
) -> None:
    source, table = written
    by_kafka = clean_with_kafka(tmp_path / "kafka", source)
    by_ottla = clean_with_ottla(tmp_path / "ottla", source)
    ours, theirs = (list(batches_in(each / f"{TOPIC}-0")) for each in (by_ottla, by_kafka))
    before = list(batches_in(source / f"{TOPIC}-0"))
    assert sum(len(each.records) for each in ours) < sum(len(each.records) for each in before) / 5
    assert ours == theirs
    # Each reads what the other has cleaned.
    with Cluster(data_dir=by_kafka) as cluster:
        assert table_of(cluster.bootstrap_servers) == table
    kafka = new_kafka(tmp_path / "reader", {})
    shutil.rmtree(tmp_path / "reader" / "data")
    shutil.copytree(by_ottla, tmp_path / "reader" / "data")
    kafka.start()
    try:
        assert table_of(f"127.0.0.1:{kafka.port}") == table
    finally:
        kafka.stop()
    leave_a_crash_to_the_other(source, by_kafka, by_ottla, table, tmp_path)


def leave_a_crash_to_the_other(
    source: Path,
    by_kafka: Path,
    by_ottla: Path,
    table: dict[bytes, tuple[int, bytes | None]],
    tmp_path: Path,
) -> None:
    """Let one program complete the swap of the other, and remove what is not finished."""
    interrupted = tmp_path / "interrupted-kafka"
    shutil.copytree(source, interrupted)
    swapped = begin_swap(by_kafka, interrupted)
    with Cluster(data_dir=interrupted, properties={"log.cleaner.enable": "false"}) as cluster:
        assert table_of(cluster.bootstrap_servers) == table
    check_swap(interrupted, by_kafka, swapped)
    kafka = new_kafka(tmp_path / "last", {"log.cleaner.enable": "false"})
    interrupted = tmp_path / "last" / "data"
    shutil.rmtree(interrupted)
    shutil.copytree(source, interrupted)
    swapped = begin_swap(by_ottla, interrupted)
    kafka.start()
    try:
        assert table_of(f"127.0.0.1:{kafka.port}") == table
    finally:
        kafka.stop()
    check_swap(interrupted, by_ottla, swapped)


def begin_swap(cleaned: Path, target: Path) -> str:
    """Leave the first cleaned segment as `.swap`, and an unfinished one as `.cleaned`."""
    first = sorted((cleaned / f"{TOPIC}-0").glob("*.log"))[0]
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        path = first.with_suffix(suffix)
        if path.exists():
            shutil.copy(path, target / f"{TOPIC}-0" / f"{path.name}.swap")
    marker = target / ".kafka_cleanshutdown"
    marker.unlink(missing_ok=True)
    last = sorted((target / f"{TOPIC}-0").glob("*.log"))[-1]
    (target / f"{TOPIC}-0" / f"{last.name}.cleaned").write_bytes(b"half a batch")
    return first.name


def check_swap(target: Path, cleaned: Path, name: str) -> None:
    directory = target / f"{TOPIC}-0"
    assert (directory / name).read_bytes() == (cleaned / f"{TOPIC}-0" / name).read_bytes()
    assert not list(directory.glob("*.swap"))
    assert not list(directory.glob("*.cleaned"))
