"""Checkpoints of many logs are collected in steps, and logs come and go in between."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.config.topic import LogConfig
from ottla.log.file_pool import FilePool
from ottla.log.store.log_store import LogStore
from ottla.memory_files import MemoryFiles
from ottla.model.ids import TopicPartition
from ottla.ports import read_file
from ottla.testing.fakes import FakeClock, FakeRandom, QueuedBackground
from tests.support.log import append_all, batch_of

COUNT = 6
HIGH_WATERMARKS = "/one/replication-offset-checkpoint"


class Disk:
    """Some logs with a record each, in a directory in memory."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.background = QueuedBackground()
        self.store = LogStore(
            self.files,
            ["/one"],
            background=self.background,
            clock=FakeClock(),
            random=FakeRandom(lambda limit: limit - 1),
            pool=FilePool(self.files, 64),
        )
        self.store.load(lambda partition: LogConfig())
        for number in range(COUNT):
            self.create(number)

    def create(self, number: int, records: int = 1) -> None:
        log = self.store.create(TopicPartition("a", number), bytes(15) + b"\x01", LogConfig())
        append_all(log, *(batch_of(1) for _ in range(records)))

    def delete(self, number: int) -> None:
        self.store.delete(TopicPartition("a", number))

    def write(self) -> int:
        """Write the checkpoints; return the number of steps on the loop."""
        steps = sum(1 for _ in self.store.write_checkpoints())
        self.background.run()
        return steps

    @property
    def high_watermarks(self) -> list[str]:
        return read_file(self.files, HIGH_WATERMARKS).decode().splitlines()[2:]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr("ottla.log.store.checkpoint_job.LOGS_A_STEP", 1)
    monkeypatch.setattr("ottla.log.store.checkpoints._LINES_A_STEP", 1)
    return Disk()


def test_no_step_is_for_all_logs(disk: Disk) -> None:
    assert disk.write() >= 4 * COUNT, "rows, offsets and two files"
    assert disk.high_watermarks == [f"a {number} 1" for number in range(COUNT)]
    assert disk.write() == COUNT, "nothing has changed: a look at each log"


@pytest.mark.parametrize("steps_before", range(6 * COUNT))
def test_a_log_that_is_created_again_meanwhile_has_no_offset_of_the_old_one(
    disk: Disk, steps_before: int
) -> None:
    def create_again() -> None:
        disk.delete(3)
        disk.create(3, records=0)

    after(steps_before, disk, create_again)
    disk.background.run()
    assert "a 3 1" not in existing(disk)
    disk.write()
    assert disk.high_watermarks == [
        *(f"a {number} 1" for number in range(COUNT) if number != 3),
        "a 3 0",
    ]


@pytest.mark.parametrize("steps_before", range(0, 6 * COUNT, 5))
def test_a_log_that_comes_meanwhile_is_in_the_next_checkpoint(
    disk: Disk, steps_before: int
) -> None:
    after(steps_before, disk, lambda: disk.create(COUNT))
    disk.background.run()
    disk.write()
    assert disk.high_watermarks == [f"a {number} 1" for number in range(COUNT + 1)]


def test_only_one_checkpoint_is_made_at_a_time(disk: Disk) -> None:
    first = disk.store.write_checkpoints()
    next(first)
    assert list(disk.store.write_checkpoints()) == []
    assert len(list(first)) > COUNT
    assert len(disk.background.waiting) == 1


def after(count: int, disk: Disk, action: Callable[[], None]) -> None:
    """Do something after some steps of a checkpoint, then the rest of them."""
    steps = disk.store.write_checkpoints()
    for _ in zip(range(count), steps, strict=False):
        pass
    action()
    for _ in steps:
        pass


def existing(disk: Disk) -> list[str]:
    return disk.high_watermarks if disk.files.exists(HIGH_WATERMARKS) else []
