from __future__ import annotations

from collections.abc import Callable
from errno import EIO, ENOSPC

import pytest

from ottla.config.broker import BrokerConfig
from ottla.controller.metadata_log import METADATA_LOG_CONFIG
from ottla.controller.metadata_reader import whole_transactions
from ottla.controller.quorum_controller import QuorumController
from ottla.controller.topics import NewTopic
from ottla.log.file_pool import FilePool
from ottla.log.log import Log
from ottla.log.resources import Resources
from ottla.log.startup.open_log import Checkpoint, create_log, open_log
from ottla.memory_files import MemoryFiles
from ottla.metadata.delta import MetadataDelta
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
from ottla.ports import Random
from ottla.raft.voters import ReplicaKey
from ottla.records.batch import scan
from ottla.records.record import build_batch, records_of
from ottla.testing.fakes import START_MS, FakeClock, InlineBackground
from ottla.testing.faulty_files import FaultyFiles, Operation
from tests.support.decisions import create_topics

PARTITION = TopicPartition(METADATA_TOPIC, 0)
DIRECTORY = "/data/__cluster_metadata-0"


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(MemoryFiles())


@pytest.fixture
def resources(files: FaultyFiles, random: Random) -> Resources:
    return Resources(files, FilePool(files), InlineBackground(), FakeClock(), random)


@pytest.fixture
def log(resources: Resources) -> Log:
    return create_log(resources, DIRECTORY, PARTITION, METADATA_TOPIC_ID, METADATA_LOG_CONFIG)


@pytest.fixture
def controller(log: Log) -> QuorumController:
    return controller_of(log)


def controller_of(log: Log) -> QuorumController:
    controller = QuorumController(
        log, MetadataImage("cluster"), ReplicaKey(1, b"d" * 16), lambda write: write()
    )
    controller.start()
    return controller


def reopen(resources: Resources) -> QuorumController:
    """Return the controller of a broker that was killed and started again."""
    log = open_log(
        resources,
        DIRECTORY,
        PARTITION,
        METADATA_LOG_CONFIG,
        checkpoint=Checkpoint(is_clean=False),
        notes=[],
    )
    return controller_of(log)


def listen(controller: QuorumController) -> list[list[str]]:
    """Return the names of the topics that each publication creates."""
    heard: list[list[str]] = []

    def publish(delta: MetadataDelta, image: MetadataImage) -> None:
        assert image is controller.image
        heard.append(delta.topics.created())

    controller.publish = publish
    return heard


def topic(number: int) -> TopicRecord:
    return TopicRecord(name=f"topic-{number}", topic_id=number.to_bytes(16, "big"))


def test_what_is_written_counts_and_is_told(controller: QuorumController) -> None:
    heard = listen(controller)
    controller.write([topic(1), topic(2)])
    assert list(controller.image.topics) == ["topic-1", "topic-2"]
    assert heard == [["topic-1", "topic-2"]]
    assert controller.log.high_watermark == 3  # after the record of the new leader
    assert controller.log.recovery_point == 3  # forced to disk
    assert (controller.image.end_offset, controller.image.epoch) == (3, 1)


def test_nothing_to_write_is_nothing(controller: QuorumController) -> None:
    heard = listen(controller)
    controller.write([])
    assert heard == []
    assert controller.log.log_end_offset == 0


def test_a_decision_is_one_batch_of_kafkas_records(controller: QuorumController) -> None:
    controller.write([topic(1), topic(2)])
    piece = controller.log.read(1, 1_000_000, 3, at_least_one=True)
    assert piece is not None
    data = piece.file.pread(piece.length, piece.position)
    (batch,) = scan(data, 0, len(data))
    assert (batch.base_offset, batch.record_count) == (1, 2)
    assert batch.partition_leader_epoch == 1
    assert batch.base_timestamp == START_MS
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
    monkeypatch.setattr("ottla.controller.metadata_log._READ_BYTES", 300)
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
    controller: QuorumController, files: FaultyFiles, resources: Resources
) -> None:
    controller.write([topic(1)])
    # Kafka's quorum writes one at the start of each epoch.
    control = build_batch(
        [(b"\0\0\0\2", b"leader", START_MS, ())], base_offset=2, leader_epoch=2, is_control=True
    )
    file = files.open(f"{DIRECTORY}/00000000000000000000.log", writable=True)
    file.pwritev([control], file.size())
    again = reopen(resources)
    assert again.log.log_end_offset == 3
    assert again.leader_epoch == 3
    assert list(again.image.topics) == ["topic-1"]


@pytest.mark.parametrize(("operation", "number"), [("write", ENOSPC), ("sync", EIO)])
def test_what_cannot_be_stored_changes_nothing(
    controller: QuorumController,
    files: FaultyFiles,
    resources: Resources,
    operation: Operation,
    number: int,
) -> None:
    heard = listen(controller)
    controller.write([topic(1)])
    files.fail(operation, OSError(number, f"{operation} failed"))
    with pytest.raises(ApiError, match=f"{operation} failed") as caught:
        controller.write([topic(2)])
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    files.heal()
    assert list(controller.image.topics) == ["topic-1"]
    assert len(heard) == 1
    controller.write([topic(3)])
    assert list(reopen(resources).image.topics) == ["topic-1", "topic-3"]


def test_a_log_that_cannot_be_repaired_takes_no_more(
    controller: QuorumController, files: FaultyFiles
) -> None:
    controller.write([topic(1)])
    lost: list[str] = []
    controller.log.resources.on_error = lambda directory, error: lost.append(directory)
    files.fail("sync")
    files.fail("truncate")
    for _ in range(2):
        with pytest.raises(ApiError) as caught:
            controller.write([topic(2)])
        files.heal()
        assert lost == [controller.log.directory]
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "restart the broker" in str(caught.value)
    assert list(controller.image.topics) == ["topic-1"]


def test_a_log_that_makes_no_sense_is_refused(controller: QuorumController) -> None:
    batch = build_batch([(None, b"nonsense", START_MS, ())])
    controller.log.append_as_leader(batch, memoryview(batch), 0, len(batch), 1, START_MS)
    controller.log.write_queued()
    with pytest.raises(MetadataError):
        controller_of(controller.log)


def test_a_sign_of_life_is_written_too(controller: QuorumController) -> None:
    controller.write([NoOpRecord()])
    assert controller.log.log_end_offset == 2


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
