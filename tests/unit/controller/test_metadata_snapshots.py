"""Snapshots of a controller: when they are written, what a start makes of them, what goes."""

from __future__ import annotations

from errno import EIO

import pytest

from ottla.controller.metadata_snapshots import RETRY_DELAY_MS, SnapshotConfig
from ottla.controller.quorum.snapshot_files import SnapshotFiles
from ottla.metadata.records import NoOpRecord, PartitionRecord
from ottla.metadata.serde import MetadataError
from ottla.metadata.snapshot import SnapshotId
from ottla.ports import read_file
from ottla.raft.log_view import OffsetAndEpoch
from ottla.records.batch import scan
from ottla.records.record import records_of
from tests.support.controller import DIRECTORY, World, topic

ALWAYS = SnapshotConfig(max_record_bytes=1)
ONE = ["00000000000000000002-0000000001.checkpoint"]


def rolling(**settings: int) -> World:
    """Return a world with segments of a few records, which keeps nothing that can go."""
    config = World().config.replace(segment_bytes=300, file_delete_delay_ms=0)
    return World(
        config=config,
        snapshots=SnapshotConfig(max_record_bytes=1, retention_bytes=1, **settings),
    )


def test_one_is_written_after_so_many_bytes() -> None:
    world = World(snapshots=SnapshotConfig(max_record_bytes=500))
    world.create(1)
    assert world.names(".checkpoint") == []
    world.create(*range(2, 9))
    (name,) = world.names(".checkpoint")
    assert world.names(".part") == []
    content = read_file(world.files, world.path(name))
    batches = list(scan(content, 0, len(content)))
    assert [batch.is_control for batch in batches] == [True, False, True]
    assert name == f"{batches[1].record_count + 1:020d}-0000000001.checkpoint"
    assert records_of(content[: batches[0].end])[0].key == b"\0\0\0\3"


def test_one_is_written_after_some_time_if_there_is_news() -> None:
    world = World(snapshots=SnapshotConfig(max_interval_ms=1000))
    world.create(1)
    world.clock.now_ms += 999
    world.controller.maintain_snapshots()
    assert world.background.waiting == []
    world.clock.now_ms += 1
    world.controller.maintain_snapshots()
    world.background.run()
    assert world.names(".checkpoint") == ONE
    world.clock.now_ms += 5000
    world.controller.maintain_snapshots()
    assert world.background.waiting == []
    without = World(snapshots=SnapshotConfig(max_interval_ms=0))
    without.create(1)
    without.clock.now_ms += 10**9
    without.controller.maintain_snapshots()
    assert without.background.waiting == []


def test_the_image_is_that_of_the_beginning_whatever_comes_meanwhile() -> None:
    world = World(snapshots=ALWAYS)
    world.submit(topic(1))
    world.end_wake_up()
    while not world.names(".part"):
        world.background.waiting.pop(0)()
    late = world.submit(topic(2))
    world.finish()
    assert late == [None]
    assert world.names(".checkpoint")[0] == ONE[0]
    world.start()
    assert world.topics() == ["topic-1", "topic-2"]


def test_a_start_needs_no_record_before_the_snapshot() -> None:
    world = rolling()
    world.create(*range(1, 40))
    log = world.controller.log
    assert log.log_start_offset > 30
    assert log.segments.base_offsets[0] > 20
    assert len(world.names(".checkpoint")) == 1
    image = world.controller.image
    for log_start_offset in (log.log_start_offset, 0):
        world.start(log_start_offset)
        after = world.controller.image
        assert after._replace(end_offset=0, epoch=0) == image._replace(end_offset=0, epoch=0)
    world.create(50)
    world.start()
    assert len(world.topics()) == 40


def test_a_start_reads_only_what_follows_the_snapshot() -> None:
    world = World(snapshots=SnapshotConfig(max_record_bytes=60_000))
    partitions = [
        PartitionRecord(partition_id=0, topic_id=topic(n).topic_id, replicas=[1], isr=[1], leader=1)
        for n in range(2000)
    ]
    for number, partition in enumerate(partitions):
        world.submit(topic(number), partition)
    world.finish()
    for _ in range(200):
        world.submit(*[NoOpRecord()] * 100)
    world.finish()
    world.controller.maintain_snapshots()
    world.background.run()
    whole = world.controller.log.size
    *_, newest = world.names(".checkpoint")
    snapshot = world.files.stat(world.path(newest)).size
    world.controller.log.close()
    before = world.files.bytes_read
    world.start(is_clean=True)
    assert len(world.topics()) == 2000
    assert whole > 400_000
    assert world.files.bytes_read - before < snapshot + 20_000


def test_without_a_log_the_snapshot_is_enough() -> None:
    world = World(snapshots=ALWAYS)
    world.create(1, 2)
    for name in world.names(".log"):
        world.files.unlink(world.path(name))
    world.start()
    assert world.topics() == ["topic-1", "topic-2"]
    assert world.controller.leader_epoch == 2
    assert (world.controller.log.log_start_offset, world.controller.image.end_offset) == (3, 3)
    world.create(3)
    world.start()
    assert world.topics() == ["topic-1", "topic-2", "topic-3"]


def damage(world: World, name: str) -> None:
    file = world.files.open(world.path(name), writable=True)
    file.pwritev([b"x"], file.size() // 2)


def test_a_damaged_snapshot_is_passed_over_while_the_log_has_the_records() -> None:
    world = World(snapshots=ALWAYS)
    world.create(1, 2, 3)
    *_, newest = world.names(".checkpoint")
    damage(world, newest)
    world.start()
    assert world.topics() == ["topic-1", "topic-2", "topic-3"]
    assert any(newest in note and "is not used" in note for note in world.notes)
    for name in world.names(".checkpoint"):
        damage(world, name)
    world.start()
    assert world.topics() == ["topic-1", "topic-2", "topic-3"]


def test_a_damaged_snapshot_that_nothing_replaces_ends_the_start() -> None:
    world = rolling()
    world.create(*range(1, 40))
    (name,) = world.names(".checkpoint")
    damage(world, name)
    with pytest.raises(MetadataError, match=rf"{name}.*the metadata log begins at \d+"):
        world.start()
    world.files.unlink(world.path(name))
    with pytest.raises(MetadataError, match="has no snapshot of the records before"):
        world.start()


def test_what_an_interrupted_write_left_is_removed() -> None:
    world = World(snapshots=ALWAYS)
    world.submit(topic(1))
    world.end_wake_up()
    while not world.names(".part"):
        world.background.waiting.pop(0)()
    world.start()
    assert world.names(".part") == []
    assert world.names(".checkpoint") == []
    assert world.topics() == ["topic-1"]


def test_old_snapshots_go_by_time_and_the_newest_stays() -> None:
    world = World(snapshots=SnapshotConfig(1, 0, retention_bytes=-1, retention_ms=1000))
    world.create(1, 2)
    assert len(world.names(".checkpoint")) == 2
    world.clock.now_ms += 1001
    world.controller.maintain_snapshots()
    assert world.names(".checkpoint") == ["00000000000000000003-0000000001.checkpoint"]
    assert world.controller.log.log_start_offset == 3
    world.clock.now_ms += 100_000
    world.controller.maintain_snapshots()
    assert len(world.names(".checkpoint")) == 1


def test_a_snapshot_that_cannot_be_written_is_tried_again_later() -> None:
    world = World(snapshots=ALWAYS)
    world.files.fill("*.part", room=50)
    world.create(1)
    assert world.names(".part") == world.names(".checkpoint") == []
    assert "a metadata snapshot cannot be written" in world.resources.notes[-1]
    world.files.heal()
    world.create(2)
    assert world.names(".checkpoint") == []
    world.clock.now_ms += RETRY_DELAY_MS
    world.controller.maintain_snapshots()
    world.background.run()
    assert world.names(".checkpoint") == ["00000000000000000003-0000000001.checkpoint"]


def test_a_snapshot_that_cannot_be_forced_to_disk_does_not_count() -> None:
    world = World(snapshots=ALWAYS)
    no_sync = OSError(EIO, "no sync")  # after the syncs for quorum-state and the leader epochs
    world.files.fail("sync_dir", no_sync, path=DIRECTORY, after=2)
    world.create(1)
    assert world.names(".checkpoint") == []


def test_one_that_is_older_than_an_installed_one_is_discarded() -> None:
    other = World(snapshots=ALWAYS)
    other.create(1)
    content = read_file(other.files, other.path(ONE[0]))
    world = rolling()
    world.submit(topic(1))
    world.end_wake_up()
    while not world.names(".part"):
        world.background.waiting.pop(0)()
    log = world.controller._snapshots._log
    fetched = SnapshotFiles(log)
    fetched.write_part(OffsetAndEpoch(19, 1), 0, content)
    done: list[OSError | None] = []
    fetched.install(OffsetAndEpoch(19, 1), done.append)
    world.background.run()
    assert done == [None]
    assert log.snapshots == [SnapshotId(19, 1)]
    assert world.names(".checkpoint") == ["00000000000000000019-0000000001.checkpoint"]
