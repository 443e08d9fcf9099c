"""All logs of a broker: directories, errors, periodic jobs, restarts."""

from __future__ import annotations

import gc
from errno import EIO, EMFILE, ENOSPC
from itertools import pairwise

import pytest

from ottla.config.topic import LogConfig
from ottla.log.file_pool import FilePool
from ottla.log.log import Log
from ottla.log.startup.open_log import create_log
from ottla.log.store.clean_shutdown import MANY, MANY_FILES
from ottla.log.store.dropped_logs import LOGS_A_STEP
from ottla.log.store.log_directory import CHECKS_WITHOUT_METADATA, read_broker_epoch
from ottla.log.store.log_store import LogStore, parent_of
from ottla.memory_files import MemoryFiles
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import METADATA_TOPIC_ID, TopicPartition
from ottla.model.steps import run_to_end
from ottla.ports import Files, read_file
from ottla.testing.fakes import FakeClock, FakeRandom, QueuedBackground
from ottla.testing.faulty_files import FaultyFiles
from tests.support.log import NOW, append, append_all, batch_of, read_all
from tests.support.request_cost import count_calls

TOPIC_ID = b"\x07" * 16
DIRS = ("/one", "/two")


class Broker:
    """A store on a disk in memory, with background work that waits to be run."""

    def __init__(self, files: Files | None = None) -> None:
        self.files = FaultyFiles(files or MemoryFiles())
        self.background = QueuedBackground()
        self.clock = FakeClock()
        self.lost: list[tuple[str, list[TopicPartition]]] = []
        self.store = LogStore(
            self.files,
            DIRS,
            background=self.background,
            clock=self.clock,
            random=FakeRandom(lambda limit: limit - 1),
            pool=FilePool(self.files, 64),
            producer_expiration_ms=1000,
        )
        self.store.on_offline = lambda path, error, lost: self.lost.append((path, lost))

    def load(self, config: LogConfig | None = None) -> Broker:
        self.store.load(lambda partition: config or LogConfig())
        return self

    def create(self, topic: str, count: int = 1, config: LogConfig | None = None) -> None:
        for number in range(count):
            self.store.create(TopicPartition(topic, number), TOPIC_ID, config or LogConfig())

    def restart(self, config: LogConfig | None = None) -> Broker:
        """Return a broker that starts on the same disk."""
        return Broker(self.files.inner).load(config)


@pytest.fixture
def broker() -> Broker:
    return Broker().load()


def test_new_logs_go_to_the_directory_that_has_the_fewest(broker: Broker) -> None:
    broker.create("a", 4)
    assert [parent_of(log) for log in broker.store] == ["/one", "/two", "/one", "/two"]
    broker.store.delete(TopicPartition("a", 0))
    broker.store.delete(TopicPartition("a", 2))
    broker.create("b", 2)
    for number in range(2):
        log = broker.store.get(TopicPartition("b", number))
        assert log is not None
        assert parent_of(log) == "/one"


def test_everything_is_there_after_a_clean_restart(broker: Broker) -> None:
    broker.create("a", 3)
    for number, log in enumerate(broker.store):
        append_all(log, *(batch_of(2) for _ in range(number + 1)))
        log.advance_log_start(1)
    broker.background.run()
    broker.store.shutdown(broker_epoch=42)
    assert read_broker_epoch(broker.files, "/one") == 42
    again = broker.restart()
    assert len(again.store) == 3
    assert again.store.notes == []
    for number in range(3):
        found = again.store.get(TopicPartition("a", number))
        assert found is not None
        assert (found.log_start_offset, found.log_end_offset) == (1, 2 * (number + 1))
        assert found.high_watermark == found.recovery_point == found.log_end_offset
        assert found.topic_id == TOPIC_ID
    assert not again.files.exists("/one/.kafka_cleanshutdown")
    assert read_broker_epoch(again.files, "/one") is None


def test_everything_written_is_there_after_a_crash(broker: Broker) -> None:
    broker.create("a", 2)
    for log in broker.store:
        append_all(log, batch_of(3))
        append(log, batch_of(1))
    again = broker.restart()
    assert [log.log_end_offset for log in again.store] == [3, 3]


def test_checkpoints_are_kafkas(broker: Broker) -> None:
    broker.create("a", 3)
    for log in broker.store:
        append_all(log, batch_of(5))
    first = next(iter(broker.store))
    first.flush()
    first.advance_log_start(2)
    run_to_end(broker.store.write_checkpoints())
    broker.background.run()
    assert read_file(broker.files, "/one/recovery-point-offset-checkpoint") == (
        b"0\n2\na 0 5\na 2 0\n"
    )
    assert read_file(broker.files, "/one/log-start-offset-checkpoint") == b"0\n1\na 0 2\n"
    assert read_file(broker.files, "/one/replication-offset-checkpoint") == (
        b"0\n2\na 0 5\na 2 5\n"
    )
    again = broker.restart()
    found = again.store.get(TopicPartition("a", 0))
    assert found is not None
    assert found.log_start_offset == 2


def test_unchanged_checkpoints_are_not_written_again(broker: Broker) -> None:
    broker.create("a")
    run_to_end(broker.store.write_checkpoints())
    run_to_end(broker.store.write_checkpoints())
    assert len(broker.background.waiting) == 2  # one for each directory
    broker.background.run()
    run_to_end(broker.store.write_checkpoints())
    assert broker.background.waiting == []


def write_checkpoints(broker: Broker, times: int = 1) -> bytes:
    """Check for new offsets this many times; return the high watermarks on disk."""
    for _ in range(times):
        run_to_end(broker.store.write_checkpoints())
        broker.background.run()
    return read_file(broker.files, "/one/replication-offset-checkpoint")


def test_the_metadata_log_alone_is_written_to_checkpoints_only_now_and_then(broker: Broker) -> None:
    metadata_log = broker.store.open_metadata_log(LogConfig())
    broker.load()
    broker.create("a", 1)
    written = write_checkpoints(broker)
    append_all(metadata_log, batch_of(5))
    assert write_checkpoints(broker, CHECKS_WITHOUT_METADATA - 1) == written
    assert b"__cluster_metadata 0 5\n" in write_checkpoints(broker)


def test_the_metadata_log_is_written_with_any_other(broker: Broker) -> None:
    metadata_log = broker.store.open_metadata_log(LogConfig())
    broker.load()
    broker.create("a", 2)
    write_checkpoints(broker)
    append_all(metadata_log, batch_of(5))
    for log in broker.store:
        append_all(log, batch_of(3))
    assert write_checkpoints(broker).splitlines()[-1] == b"__cluster_metadata 0 5"


def test_checkpoints_that_could_not_be_written_are_written_again(broker: Broker) -> None:
    broker.create("a")
    write_checkpoints(broker)
    log = next(iter(broker.store))
    append_all(log, batch_of(3))
    broker.files.fail("sync", OSError(ENOSPC, "no room"))
    run_to_end(broker.store.write_checkpoints())
    broker.background.run()
    broker.files.heal()
    assert write_checkpoints(broker) == b"0\n1\na 0 3\n"


def test_a_damaged_checkpoint_means_checking_everything(broker: Broker) -> None:
    broker.create("a")
    append_all(next(iter(broker.store)), batch_of(5))
    broker.files.open("/one/recovery-point-offset-checkpoint", create=True, writable=True).pwritev(
        [b"nonsense\n1\nx"], 0
    )
    again = broker.restart()
    assert any("recovery-point-offset-checkpoint" in note for note in again.store.notes)
    assert [log.log_end_offset for log in again.store] == [5]


def test_an_io_error_takes_one_directory_offline(broker: Broker) -> None:
    broker.create("a", 4)
    for log in broker.store:
        append_all(log, batch_of(1))
    broken = broker.store.get(TopicPartition("a", 0))
    assert broken is not None
    no_room = OSError(EIO, "no room")
    broker.files.fail("write", no_room, path="/one/a-0/00000000000000000000.log")
    append(broken, batch_of(1))
    with pytest.raises(OSError, match="no room") as failed:
        broken.write_queued()
    broker.store.handle_error(broken, failed.value)
    assert list(broker.store.offline_dirs) == ["/one"]
    assert broker.lost == [("/one", [TopicPartition("a", 0), TopicPartition("a", 2)])]
    assert broker.store.offline_partitions == {TopicPartition("a", 0), TopicPartition("a", 2)}
    assert broker.store.get(TopicPartition("a", 2)) is None
    other = broker.store.get(TopicPartition("a", 1))
    assert other is not None
    append_all(other, batch_of(1))
    broker.create("b", 2)
    assert {parent_of(log) for log in broker.store} == {"/two"}
    assert broker.store.notes == [f"/one: offline after {failed.value}"]


@pytest.mark.parametrize("errno", [ENOSPC, EMFILE])
def test_a_full_disk_refuses_writes_but_the_directory_stays(broker: Broker, errno: int) -> None:
    broker.create("a", 2)
    log = broker.store.get(TopicPartition("a", 0))
    assert log is not None
    broker.files.fail("write", OSError(errno, "no room"), path="*.log")
    append(log, batch_of(1))
    with pytest.raises(OSError, match="no room") as failed:
        log.write_queued()
    broker.store.handle_error(log, failed.value)
    assert not broker.store.offline_dirs
    broker.files.heal()
    assert append_all(log, batch_of(1)) == [0]


def test_a_log_that_cannot_be_made_leaves_nothing_behind(broker: Broker) -> None:
    broker.files.fill("*partition.metadata")
    with pytest.raises(OSError, match="no room"):
        broker.create("a")
    assert broker.files.list("/one") == []
    assert not broker.store.offline_dirs
    broker.files.heal()
    broker.create("a")
    assert len(broker.store) == 1


def test_without_a_directory_no_log_can_be_made(broker: Broker) -> None:
    broker.create("a", 2)
    for log in list(broker.store):
        broker.store.handle_error(log, OSError(EIO, "on purpose"))
    with pytest.raises(ApiError) as refused:
        broker.create("b")
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def damaged_at_rest(broker: Broker) -> Broker:
    """Return the next start, on a log with a damaged closed segment that has no index."""
    config = LogConfig(segment_bytes=200, retention_ms=1000)
    broker.create("a", 3, config)
    for log in broker.store:
        for _ in range(5):
            append_all(log, batch_of(1))
    broker.store.shutdown()
    broker.files.unlink("/one/a-0/00000000000000000000.index")
    file = broker.files.open("/one/a-0/00000000000000000000.log", writable=True)
    file.pwritev([b"\x77"], 16)
    again = broker.restart(config)
    again.store.notes.clear()
    return again


def test_a_damaged_log_goes_offline_alone(broker: Broker) -> None:
    again = damaged_at_rest(broker)
    damaged = TopicPartition("a", 0)
    assert sum(again.store.run_retention(NOW + 10**9)) == 6
    assert sum(again.store.run_retention(NOW + 10**9)) == 0
    assert not again.store.offline_dirs
    assert again.store.offline_partitions == {damaged}
    assert again.lost == [("/one/a-0", [damaged])]
    (note,) = again.store.notes
    assert note.startswith("a-0 is offline, other partitions are not affected: /one/a-0/0000")
    assert "at position 0" in note
    assert "restore /one/a-0 from a copy" in note
    other = again.store.get(TopicPartition("a", 2))
    assert other is not None
    assert parent_of(other) == "/one"
    append_all(other, batch_of(1))


def test_a_damaged_log_is_not_marked_clean_and_comes_back_at_the_next_start(
    broker: Broker,
) -> None:
    again = damaged_at_rest(broker)
    log = again.store.get(TopicPartition("a", 0))
    assert log is not None
    with pytest.raises(OSError, match="damaged") as failed:
        log.offset_for_timestamp(NOW)
    again.store.handle_error(log, failed.value)
    again.store.handle_error(log, failed.value)
    assert len(again.store.notes) == 1
    again.store.shutdown()
    assert read_broker_epoch(again.files, "/one") is None
    assert read_broker_epoch(again.files, "/two") is not None
    third = again.restart()
    found = third.store.get(TopicPartition("a", 0))
    assert found is not None
    assert found.log_end_offset == 5


def test_a_damaged_log_can_be_deleted(broker: Broker) -> None:
    again = damaged_at_rest(broker)
    assert sum(again.store.run_retention(NOW + 10**9)) == 6
    again.store.delete(TopicPartition("a", 0))
    assert not again.store.offline_partitions
    assert not again.files.exists("/one/a-0")
    again.create("a")
    again.store.shutdown()
    assert read_broker_epoch(again.files, "/one") is not None


def test_a_log_that_is_damaged_beyond_recovery_does_not_stop_the_start(broker: Broker) -> None:
    broker.create("a", 3)
    for log in broker.store:
        append_all(log, batch_of(1))
    broker.store.shutdown()
    broker.files.open("/one/a-0/00000000000000000000.log.swap", create=True, writable=True).pwritev(
        [bytes(100)], 0
    )
    again = broker.restart()
    assert again.store.offline_partitions == {TopicPartition("a", 0)}
    assert again.store.get(TopicPartition("a", 2)) is not None
    assert "a-0 is offline" in again.store.notes[-1]


def test_a_directory_that_cannot_be_loaded_is_offline_from_the_start(broker: Broker) -> None:
    broker.create("a", 2)
    for log in broker.store:
        append_all(log, batch_of(1))
    again = Broker(broker.files.inner)
    again.files.fail("open", OSError(EIO, "on purpose"), path="*/one/a-0/00000000000000000000.log")
    again.load()
    assert list(again.store.offline_dirs) == ["/one"]
    assert again.store.get(TopicPartition("a", 1)) is not None


def test_background_errors_take_the_directory_offline(broker: Broker) -> None:
    broker.create("a", 2)
    log = broker.store.get(TopicPartition("a", 0))
    assert log is not None
    append_all(log, batch_of(1))
    broker.files.fail("sync", OSError(EIO, "on purpose"))
    log.start_flush()
    broker.background.run()
    assert list(broker.store.offline_dirs) == ["/one"]


def test_a_deleted_log_is_renamed_at_once_and_removed_later(broker: Broker) -> None:
    broker.create("a", config=LogConfig(file_delete_delay_ms=100))
    log = broker.store.get(TopicPartition("a", 0))
    assert log is not None
    append_all(log, batch_of(1))
    piece = log.read(0, 1000, 1, at_least_one=True)
    broker.store.delete(TopicPartition("a", 0))
    assert broker.store.get(TopicPartition("a", 0)) is None
    names = [entry.name for entry in broker.files.list("/one")]
    assert [name for name in names if name.startswith("a-0.") and name.endswith("-delete")]
    broker.create("a")  # the name is free again
    assert broker.store.delete_pending_files(NOW + 99) == 0
    assert broker.store.delete_pending_files(NOW + 100) == 1
    broker.background.run()
    assert not [e for e in broker.files.list("/one") if e.name.endswith("-delete")]
    assert piece is not None
    assert piece.read()


def test_directories_that_were_being_deleted_go_at_the_next_start(broker: Broker) -> None:
    broker.create("a")
    broker.store.delete(TopicPartition("a", 0))
    again = broker.restart()
    assert len(again.store) == 0
    again.store.delete_pending_files(NOW)
    again.background.run()
    assert not [e for e in again.files.list("/one") if e.name.endswith("-delete")]


def test_a_stray_log_is_kept_under_another_name(broker: Broker) -> None:
    broker.create("a")
    append_all(next(iter(broker.store)), batch_of(1))
    broker.store.set_aside(TopicPartition("a", 0))
    assert len(broker.store) == 0
    assert "-stray" in broker.store.notes[0]
    again = broker.restart()
    assert len(again.store) == 0
    assert "ignored" in again.store.notes[0]


def two_logs_of_one_partition(broker: Broker, second_id: bytes) -> None:
    """Make `a-0` with 5 records in /one, and with 2 records and another topic id in /two."""
    broker.create("a")
    append_all(next(iter(broker.store)), batch_of(5))
    other = create_log(
        broker.store.resources, "/two/a-0", TopicPartition("a", 0), second_id, LogConfig()
    )
    append_all(other, batch_of(2))


def test_of_two_logs_of_a_partition_the_one_with_the_topics_id_is_kept(broker: Broker) -> None:
    two_logs_of_one_partition(broker, b"\x08" * 16)
    again = Broker(broker.files.inner)
    again.store.load(lambda partition: LogConfig(), {TopicPartition("a", 0): b"\x08" * 16})
    assert [log.directory for log in again.store] == ["/two/a-0"]
    assert [entry.name for entry in again.files.list("/one") if "-stray" in entry.name]
    assert any("in /one/a-0 and in /two/a-0" in note for note in again.store.notes)
    again.create("b", 2)
    assert [parent_of(log) for log in again.store] == ["/two", "/one", "/one"]


def test_of_two_logs_with_the_same_id_the_longer_one_is_kept(broker: Broker) -> None:
    two_logs_of_one_partition(broker, TOPIC_ID)
    again = broker.restart()
    assert [(log.directory, log.log_end_offset) for log in again.store] == [("/one/a-0", 5)]
    assert [entry.name for entry in again.files.list("/two") if "-stray" in entry.name]


def test_partitions_of_a_directory_that_fails_at_start_are_offline(broker: Broker) -> None:
    broker.create("a", 4)
    for log in broker.store:
        append_all(log, batch_of(1))
    again = Broker(broker.files.inner)
    again.files.fail("open", OSError(EIO, "on purpose"), path="*/one/a-2/00000000000000000000.log")
    again.load()
    assert again.store.offline_partitions == {TopicPartition("a", 0), TopicPartition("a", 2)}


def test_what_may_lie_in_an_unreadable_directory_is_offline(broker: Broker) -> None:
    broker.create("a", 4)
    again = Broker(broker.files.inner)
    again.files.fail("list", path="/one")
    partitions = {TopicPartition("a", number): TOPIC_ID for number in range(5)}
    again.store.load(lambda partition: LogConfig(), partitions)
    assert sorted(log.topic_partition.partition for log in again.store) == [1, 3]
    assert {p.partition for p in again.store.offline_partitions} == {0, 2, 4}


def test_retention_runs_over_all_logs(broker: Broker) -> None:
    broker.create("a", 3, LogConfig(retention_ms=100))
    for log in broker.store:
        append_all(log, batch_of(1))
    assert sum(broker.store.run_retention(NOW + 100)) == 0
    assert sum(broker.store.run_retention(NOW + 101)) == 3


def test_retention_of_many_segments_lets_other_work_between(broker: Broker) -> None:
    broker.create("a", 2, LogConfig(retention_ms=100, segment_bytes=100))
    for log in broker.store:
        append_all(log, *[batch_of(1) for _ in range(200)])
    first, second = broker.store
    steps = broker.store.run_retention(NOW + 101)
    counts = [next(steps) for _ in range(3)]
    assert all(0 < count < 50 for count in counts)
    assert len(first.segments) == 200 - sum(counts)
    broker.store.delete(second.topic_partition)  # while the round goes on
    assert sum(counts) + sum(steps) == 200
    assert len(first.segments) == 1


def test_what_is_due_is_removed_some_at_a_time(broker: Broker) -> None:
    trash = broker.store.resources.trash
    for number in range(1500):
        trash.add_file(f"/one/{number}.deleted", NOW)
    assert broker.store.delete_pending_files(NOW) == 1000
    assert broker.store.delete_pending_files(NOW) == 0
    broker.background.run()
    assert broker.store.delete_pending_files(NOW) == 500


def test_flush_ms_flushes_in_the_background(broker: Broker) -> None:
    broker.create("a", 1, LogConfig(flush_ms=50))
    broker.create("b", 1)
    for log in broker.store:
        append_all(log, batch_of(1))
    run_to_end(broker.store.run_flush(NOW + 49))
    assert broker.background.waiting == []
    run_to_end(broker.store.run_flush(NOW + 50))
    broker.background.run()
    assert [log.recovery_point for log in broker.store] == [1, 0]


def test_silent_producers_are_forgotten(broker: Broker) -> None:
    broker.create("a")
    log = next(iter(broker.store))
    append_all(log, batch_of(1, producer_id=5))
    assert sum(broker.store.expire_producers(NOW + 999)) == 0
    assert sum(broker.store.expire_producers(NOW + 1000)) == 1
    assert append_all(log, batch_of(1, producer_id=5, base_sequence=77)) == [1]


def test_logs_that_are_gone_are_freed_in_steps(broker: Broker) -> None:
    def in_memory() -> int:
        return sum(isinstance(each, Log) for each in gc.get_objects())

    gc.collect()
    others = in_memory()
    broker.create("a", 200)
    for number in range(200):
        broker.store.delete(TopicPartition("a", number))
    run_to_end(broker.store.release_idle_memory())
    counts = [in_memory() - others]
    assert counts[0] >= 200  # somebody may have a list of them
    for _ in broker.store.release_idle_memory():
        counts.append(in_memory() - others)
    assert counts[-1] == 0
    assert max(before - after for before, after in pairwise(counts)) <= LOGS_A_STEP


def test_no_step_looks_at_all_logs_without_producers(broker: Broker) -> None:
    broker.create("a", 2000)
    log = next(iter(broker.store))
    append_all(log, batch_of(1, producer_id=5))
    calls: list[int] = []
    found: list[int | None] = [0]
    steps = broker.store.expire_producers(NOW + 1000)

    def take_step() -> None:
        found.append(next(steps, None))

    while found[-1] is not None:
        calls.append(count_calls(take_step))
    assert max(calls) < 3000
    assert sum(count or 0 for count in found) == 1


def test_the_metadata_log_lives_in_the_first_directory() -> None:
    broker = Broker()
    log = broker.store.open_metadata_log(LogConfig())
    broker.load()
    assert log.directory == "/one/__cluster_metadata-0"
    assert log.topic_id == METADATA_TOPIC_ID
    append_all(log, batch_of(2))
    log.flush()
    assert len(broker.store) == 0
    broker.create("a", 2)
    broker.background.run()
    broker.store.shutdown()
    again = Broker(broker.files.inner)
    metadata = again.store.open_metadata_log(LogConfig())
    again.load()
    assert metadata.log_end_offset == 2
    assert metadata.recovery_point == 2
    assert len(read_all(metadata)) == 1
    assert len(again.store) == 2
    assert again.store.notes == []


def test_the_metadata_log_is_recovered_after_a_crash() -> None:
    broker = Broker()
    append_all(broker.store.open_metadata_log(LogConfig()), batch_of(2), batch_of(2))
    path = "/one/__cluster_metadata-0/00000000000000000000.log"
    file = broker.files.inner.open(path, writable=True)
    file.truncate(file.size() - 1)
    again = Broker(broker.files.inner)
    assert again.store.open_metadata_log(LogConfig()).log_end_offset == 2
    assert len(again.store.notes) == 1


def test_a_directory_whose_logs_cannot_be_closed_is_not_marked_clean(broker: Broker) -> None:
    broker.create("a", 2)
    for log in broker.store:
        append_all(log, batch_of(1))
    broker.files.fill("*/one/a-0/00000000000000000001.snapshot")
    broker.store.shutdown()
    assert not broker.files.exists("/one/.kafka_cleanshutdown")
    assert broker.files.exists("/two/.kafka_cleanshutdown")


def test_foreign_directories_are_left_alone(broker: Broker) -> None:
    broker.files.make_dirs("/one/lost+found")
    broker.files.make_dirs("/one/a-0.0123-future")
    again = broker.restart()
    assert len(again.store) == 0
    assert len(again.store.notes) == 2


def filled_partitions(count: int) -> Broker:
    broker = Broker().load()
    broker.create("a", count)
    for log in broker.store:
        append_all(log, batch_of(1, producer_id=7))
    broker.files.synced.clear()
    return broker


@pytest.mark.parametrize("can_sync_volume", [True, False])
def test_many_logs_are_closed_with_few_syncs(can_sync_volume: bool) -> None:
    broker = filled_partitions(2 * MANY)
    broker.files.can_sync_volume = can_sync_volume
    broker.store.shutdown()
    count = len(broker.files.synced)
    assert count <= 30 if can_sync_volume else count >= 6 * 2 * MANY
    again = broker.restart()
    assert again.store.notes == []
    assert len(again.store) == 2 * MANY
    for log in again.store:
        assert log.log_end_offset == log.recovery_point == 1
        assert list(log.producers.entries) == [7]
        assert log.leader_epochs.entries == ((0, 0),)


def test_a_log_of_many_fresh_segments_is_closed_with_few_syncs() -> None:
    broker = Broker().load()
    broker.create("a")
    (log,) = broker.store
    for _ in range(MANY_FILES // 2):
        append_all(log, batch_of(1))
        log.roll(NOW)
    assert broker.background.waiting
    broker.files.synced.clear()
    broker.store.stop_flushes()
    broker.background.run()
    assert broker.files.synced == [], "the flush in the background is given up"
    broker.store.shutdown()
    assert len(broker.files.synced) <= 20
    again = broker.restart()
    assert again.store.notes == []
    (log,) = again.store
    assert log.log_end_offset == log.recovery_point == MANY_FILES // 2


def test_a_volume_that_cannot_be_synced_is_not_marked_clean() -> None:
    broker = filled_partitions(2 * MANY)
    broker.files.fail("sync_volume", OSError(EIO, "on purpose"), path="/one")
    broker.store.shutdown()
    assert list(broker.store.offline_dirs) == ["/one"]
    assert read_broker_epoch(broker.files, "/one") is None
    assert read_broker_epoch(broker.files, "/two") is not None


def test_creating_a_deleted_topic_again_writes_each_checkpoint_once() -> None:
    broker = filled_partitions(20)
    broker.create("other", 2)
    run_to_end(broker.store.write_checkpoints())
    broker.background.run()
    for number in range(20):
        broker.store.delete(TopicPartition("a", number))
    broker.files.synced.clear()
    broker.create("a", 20)
    checkpoints = [path for path in broker.files.synced if "checkpoint" in path]
    assert len(checkpoints) == 4  # recovery points and high watermarks of two directories
    for directory in DIRS:
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            content = read_file(broker.files, f"{directory}/{name}")
            assert b"a " not in content
            assert b"other " in content


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        "a-0/leader-epoch-checkpoint",
        "a-0/partition.metadata",
        "a-0/00000000000000000001.snapshot",
    ],
)
def test_a_small_file_that_has_become_huge_does_not_stop_the_start(name: str) -> None:
    broker = filled_partitions(2)
    broker.store.shutdown()
    broker.files.open(f"/one/{name}", writable=True).truncate(2**31)
    again = broker.restart()
    assert not again.store.offline_dirs
    log = again.store.get(TopicPartition("a", 0))
    assert log is not None
    assert log.log_end_offset == 1
    assert [note for note in again.store.notes if name in note]
