"""Directories that Apache Kafka 4.3.0 has written: `orders-0`, closed and as a crash leaves it.

Made with librdkafka: 20 plain records, 20 idempotent, 5 zstd, 5 lz4, a committed and an aborted
transaction of 4 records, 10 idempotent; one record a batch, segments of 3,000 bytes, an index
entry every 500 bytes.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from ottla.config.topic import LogConfig
from ottla.log.log import Log
from ottla.log.segment.txn_index import AbortedTxn, read_txn_index
from ottla.log.startup.open_log import Checkpoint, open_log
from ottla.model.ids import TopicPartition, uuid_from_text
from ottla.records.record import records_of
from ottla.server.os_files import OsFiles
from tests.support.log import append_all, batch_of, new_resources, read_all

ARCHIVE = Path(__file__).parent / "kafka-4.3.0-partition.tar.gz"
CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=500, segment_index_bytes=4096)
TIME = 1_700_000_000_000


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return the path of the directories `clean` and `crashed`."""
    with tarfile.open(ARCHIVE) as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member)
            if content is not None:
                path = tmp_path / member.name
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(content.read())
    return tmp_path


@pytest.fixture(params=["clean", "crashed"])
def directory(request: pytest.FixtureRequest, place: Path) -> Path:
    found: Path = place / request.param
    return found


def open_kafkas(directory: Path, notes: list[str] | None = None) -> Log:
    return open_log(
        new_resources(OsFiles()),
        str(directory),
        TopicPartition("orders", 0),
        CONFIG,
        checkpoint=Checkpoint(directory.name == "clean", 0, 0, 70),
        notes=[] if notes is None else notes,
    )


def test_offsets_epochs_and_identity(directory: Path) -> None:
    notes: list[str] = []
    log = open_kafkas(directory, notes)
    assert notes == []
    assert (log.log_start_offset, log.log_end_offset) == (0, 70)
    assert log.segments.base_offsets == [0, 26, 53, 54]
    assert log.leader_epochs.entries == ((0, 0),)
    text = (directory / "partition.metadata").read_text().split()[-1]
    assert log.topic_id == uuid_from_text(text)


def test_every_record_is_found(directory: Path) -> None:
    log = open_kafkas(directory)
    batches = read_all(log)
    assert [batch.base_offset for batch in batches] == list(range(70))
    controls = [batch.base_offset for batch in batches if batch.is_control]
    assert controls == [54, 59]
    assert [batch.compression for batch in batches[40:50]] == [4] * 5 + [3] * 5
    for offset, start in ((0, 0), (25, 105), (44, 204), (69, 609)):
        piece = log.read(offset, 1, 70, at_least_one=True)
        assert piece is not None
        assert records_of(piece.read())[0].value == b"value-%05d" % start * 4


def test_timestamps(directory: Path) -> None:
    log = open_kafkas(directory)
    assert log.offset_for_timestamp(TIME + 7) == (7, TIME + 7, 0)
    assert log.offset_for_timestamp(TIME + 204) == (44, TIME + 204, 0)
    last = log.max_timestamp()
    assert last is not None
    assert last.offset == 59  # markers carry the time of the broker


def test_producers_and_transactions(directory: Path) -> None:
    log = open_kafkas(directory)
    assert {pid: entry.last_sequence for pid, entry in log.producers} == {0: 19, 1: 3, 2: 3, 3: 9}
    assert log.producers.ongoing == {}
    assert log.last_stable_offset == 70
    assert read_txn_index(OsFiles(), log.active.path(".txnindex")) == [AbortedTxn(2, 55, 59, 60)]


def test_appending_goes_on(directory: Path) -> None:
    log = open_kafkas(directory)
    assert append_all(log, batch_of(1, producer_id=3, base_sequence=9)) == [69]  # a duplicate
    offsets = append_all(
        log, *(batch_of(2, producer_id=3, base_sequence=10 + 2 * n) for n in range(40))
    )
    assert offsets == list(range(70, 150, 2))
    log.close()
    again = open_kafkas(directory)
    again.high_watermark = 150
    assert len(read_all(again)) == 70 + 40
    assert len(again.segments) > 5


def test_files_closed_by_kafka_are_not_changed_by_opening(place: Path) -> None:
    directory = place / "clean"
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    open_kafkas(directory).close()
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


def test_recovery_makes_the_indexes_kafka_made(place: Path) -> None:
    log = open_kafkas(place / "crashed")
    log.close()
    for path in sorted((place / "clean").glob("*index")):
        assert (place / "crashed" / path.name).read_bytes() == path.read_bytes(), path.name
