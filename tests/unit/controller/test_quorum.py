from __future__ import annotations

from collections.abc import Callable, Sequence
from errno import EIO, ENOSPC
from typing import TypeVar

import pytest

from ottla.config.broker import BrokerConfig
from ottla.controller.quorum import METADATA_LOG_CONFIG, QuorumController, whole_transactions
from ottla.controller.topics import NewTopic, create_topics
from ottla.log.file_pool import FilePool
from ottla.log.log import Log
from ottla.log.resources import Resources
from ottla.log.startup.open_log import Checkpoint, create_log, open_log
from ottla.memory_files import MemoryFile, MemoryFiles
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    TopicRecord,
)
from ottla.metadata.serde import MetadataError, decode_record
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, TopicPartition
from ottla.ports import Buffer, Random
from ottla.records.batch import scan
from ottla.records.record import build_batch, records_of
from ottla.wire.message import Message

PARTITION = TopicPartition(METADATA_TOPIC, 0)
DIRECTORY = "/data/__cluster_metadata-0"
NOW_MS = 1_700_000_000_000
T = TypeVar("T")


class FixedClock:
    def wall_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> float:
        return 0.0


class AtOnce:
    """Background work done in the foreground."""

    def submit(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        done(work())


class FailingFile:
    """A file that fails as its file system is told to."""

    def __init__(self, file: MemoryFile, files: FailingFiles) -> None:
        self._file = file
        self._files = files

    def __getattr__(self, name: str) -> object:
        if name in self._files.failing:
            raise OSError(self._files.failing[name], f"{name} failed")
        return getattr(self._file, name)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        if "pwritev" in self._files.failing:
            raise OSError(self._files.failing["pwritev"], "pwritev failed")
        self._file.pwritev(buffers, position)


class FailingFiles(MemoryFiles):
    """Fails the named operations of its files with the given error numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: dict[str, int] = {}

    def open(self, path: str, *, create: bool = False, writable: bool = False) -> MemoryFile:
        file = super().open(path, create=create, writable=writable)
        return FailingFile(file, self)  # type: ignore[return-value]


@pytest.fixture
def files() -> FailingFiles:
    return FailingFiles()


@pytest.fixture
def resources(files: FailingFiles, random: Random) -> Resources:
    return Resources(files, FilePool(files), AtOnce(), FixedClock(), random)


@pytest.fixture
def log(resources: Resources) -> Log:
    return create_log(resources, DIRECTORY, PARTITION, METADATA_TOPIC_ID, METADATA_LOG_CONFIG)


@pytest.fixture
def controller(log: Log) -> QuorumController:
    return controller_of(log)


def controller_of(log: Log) -> QuorumController:
    controller = QuorumController(log, MetadataImage("cluster"), FixedClock())
    controller.replay()
    return controller


def reopen(resources: Resources) -> QuorumController:
    """The controller of a broker that was killed and started again."""
    log = open_log(
        resources,
        DIRECTORY,
        PARTITION,
        METADATA_LOG_CONFIG,
        checkpoint=Checkpoint(is_clean=False),
        notes=[],
    )
    return controller_of(log)


def topic(number: int) -> TopicRecord:
    return TopicRecord(name=f"topic-{number}", topic_id=number.to_bytes(16, "big"))


def test_what_is_written_counts_and_is_told(controller: QuorumController) -> None:
    heard: list[Sequence[Message]] = []
    controller.listeners.append(heard.append)
    controller.write([topic(1), topic(2)])
    assert list(controller.image.topics) == ["topic-1", "topic-2"]
    assert heard == [[topic(1), topic(2)]]
    assert controller.log.high_watermark == 2
    assert controller.log.recovery_point == 2  # forced to disk


def test_nothing_to_write_is_nothing(controller: QuorumController) -> None:
    heard: list[Sequence[Message]] = []
    controller.listeners.append(heard.append)
    controller.write([])
    assert heard == []
    assert controller.log.log_end_offset == 0


def test_a_decision_is_one_batch_of_kafkas_records(controller: QuorumController) -> None:
    controller.write([topic(1), topic(2)])
    piece = controller.log.read(0, 1_000_000, 2, at_least_one=True)
    assert piece is not None
    data = piece.file.pread(piece.length, piece.position)
    (batch,) = scan(data, 0, len(data))
    assert (batch.base_offset, batch.record_count) == (0, 2)
    assert batch.partition_leader_epoch == 1
    assert batch.base_timestamp == NOW_MS
    records = records_of(data)
    assert [record.key for record in records] == [None, None]
    assert [decode_record(record.value or b"") for record in records] == [topic(1), topic(2)]


def test_a_restart_finds_everything_again(
    controller: QuorumController, resources: Resources
) -> None:
    controller.write([FeatureLevelRecord(name="metadata.version", feature_level=25)])
    controller.write([topic(1), topic(2)])
    again = reopen(resources)
    assert list(again.image.topics) == ["topic-1", "topic-2"]
    assert again.image.features == {"metadata.version": 25}
    assert again.leader_epoch == 2
    again.write([topic(3)])
    third = reopen(resources)
    assert list(third.image.topics) == ["topic-1", "topic-2", "topic-3"]
    assert third.leader_epoch == 3


def test_replay_reads_more_than_fits_into_one_piece(
    controller: QuorumController, resources: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        controller.write([topic(number)])
    monkeypatch.setattr("ottla.controller.quorum._READ_BYTES", 300)
    assert len(reopen(resources).image.topics) == 50


def test_a_large_request_is_replayed(
    controller: QuorumController,
    resources: Resources,
    random: Random,
    brokers: Callable[..., MetadataImage],
) -> None:
    decision = create_topics(brokers(1), BrokerConfig(), random, [NewTopic("big", 10_000)])
    controller.write(decision.records)
    assert len(reopen(resources).image.topics["big"].partitions) == 10_000


def test_control_batches_are_passed_over(
    controller: QuorumController, files: FailingFiles, resources: Resources
) -> None:
    controller.write([topic(1)])
    # Kafka's quorum writes one at the start of each epoch.
    control = build_batch(
        [(b"\0\0\0\2", b"leader", NOW_MS, ())], base_offset=1, leader_epoch=2, is_control=True
    )
    file = files.open(f"{DIRECTORY}/00000000000000000000.log", writable=True)
    file.pwritev([control], file.size())
    again = reopen(resources)
    assert again.log.log_end_offset == 2
    assert list(again.image.topics) == ["topic-1"]


@pytest.mark.parametrize(("operation", "number"), [("pwritev", ENOSPC), ("sync", EIO)])
def test_what_cannot_be_stored_changes_nothing(
    controller: QuorumController,
    files: FailingFiles,
    resources: Resources,
    operation: str,
    number: int,
) -> None:
    heard: list[Sequence[Message]] = []
    controller.listeners.append(heard.append)
    controller.write([topic(1)])
    files.failing[operation] = number
    with pytest.raises(ApiError, match=f"{operation} failed") as caught:
        controller.write([topic(2)])
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    files.failing.clear()
    assert list(controller.image.topics) == ["topic-1"]
    assert len(heard) == 1
    controller.write([topic(3)])
    assert list(reopen(resources).image.topics) == ["topic-1", "topic-3"]


def test_a_log_that_cannot_be_repaired_takes_no_more(
    controller: QuorumController, files: FailingFiles
) -> None:
    controller.write([topic(1)])
    files.failing.update(sync=EIO, truncate=EIO)
    for _ in range(2):
        with pytest.raises(ApiError) as caught:
            controller.write([topic(2)])
        files.failing.clear()
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "restart the broker" in str(caught.value)
    assert list(controller.image.topics) == ["topic-1"]


def test_a_log_that_makes_no_sense_is_refused(controller: QuorumController) -> None:
    batch = build_batch([(None, b"nonsense", NOW_MS, ())])
    controller.log.append_as_leader(batch, memoryview(batch), 0, len(batch), 1, NOW_MS)
    controller.log.write_queued()
    with pytest.raises(MetadataError):
        controller_of(controller.log)


def test_a_sign_of_life_is_written_too(controller: QuorumController) -> None:
    controller.write([NoOpRecord()])
    assert controller.log.log_end_offset == 1


def test_records_of_a_transaction_count_once_it_has_ended() -> None:
    first, second, third, fourth = (NoOpRecord() for _ in range(4))
    log = [
        first,
        BeginTransactionRecord(name="bootstrap"),
        second,
        EndTransactionRecord(),
        BeginTransactionRecord(),
        third,
        AbortTransactionRecord(reason="failed"),
        fourth,
        BeginTransactionRecord(),
        NoOpRecord(),
    ]
    counted = list(whole_transactions(log))
    assert [id(record) for record in counted] == [id(record) for record in (first, second, fourth)]
