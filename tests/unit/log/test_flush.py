"""Flushes: what is forced to disk in which order, and when the recovery point moves."""

from __future__ import annotations

from errno import EIO, ENOSPC

import pytest

from ottla.config.topic import LogConfig
from ottla.log.file_pool import FilePool
from ottla.log.log import Log
from ottla.log.resources import Resources
from ottla.memory_files import MemoryFiles
from ottla.testing.fakes import FakeClock, FakeRandom, QueuedBackground
from ottla.testing.faulty_files import FaultyFiles
from tests.support.log import NOW, append_all, batch_of, new_log, reopen
from tests.support.request_cost import count_calls

SIZE = len(batch_of(1))


class Place:
    """A log whose background work waits to be run."""

    def __init__(self) -> None:
        self.files = FaultyFiles(MemoryFiles())
        self.background = QueuedBackground()
        self.clock = FakeClock()
        self.errors: list[OSError] = []
        resources = Resources(
            self.files,
            FilePool(self.files, 64),
            self.background,
            self.clock,
            FakeRandom(lambda limit: limit - 1),
        )
        resources.on_error = lambda path, error: self.errors.append(error)
        self.log: Log = new_log(LogConfig(segment_bytes=3 * SIZE), resources)

    def synced_names(self) -> list[str]:
        return [path.rpartition("/")[2] for path in self.files.synced]


@pytest.fixture
def place() -> Place:
    return Place()


def test_a_flush_syncs_batches_new_files_epochs_and_the_directory(place: Place) -> None:
    append_all(place.log, batch_of(1))
    place.log.flush()
    assert place.log.recovery_point == 1
    names = place.synced_names()
    assert names[0] == "00000000000000000000.log"
    assert "partition.metadata" in names
    assert names[-3:] == ["leader-epoch-checkpoint.tmp", "t-0", "data"]
    assert place.files.exists(place.log.path("leader-epoch-checkpoint"))


def test_a_second_flush_has_only_new_batches_to_sync(place: Place) -> None:
    append_all(place.log, batch_of(1))
    place.log.flush()
    place.files.synced.clear()
    place.log.flush()
    assert place.files.synced == []
    append_all(place.log, batch_of(1))
    place.log.flush()
    assert place.synced_names() == ["00000000000000000000.log"]


def test_a_flush_up_to_an_offset_leaves_later_segments(place: Place) -> None:
    append_all(place.log, *(batch_of(1) for _ in range(8)))
    place.background.waiting.clear()
    place.log.flush(3)
    assert place.log.recovery_point == 3
    assert "00000000000000000000.log" in place.synced_names()
    assert "00000000000000000000.index" in place.synced_names()


def test_the_recovery_point_waits_for_the_background(place: Place) -> None:
    append_all(place.log, *(batch_of(1) for _ in range(4)))
    assert place.log.recovery_point == 0
    place.background.run()
    assert place.log.recovery_point == 3


def test_flushes_asked_for_meanwhile_become_one(place: Place) -> None:
    append_all(place.log, *(batch_of(1) for _ in range(10)))
    assert len(place.background.waiting) == 1
    place.background.run()
    assert place.log.recovery_point == 9


def test_a_flush_of_thousands_of_segments_lists_their_files_in_the_background(
    place: Place,
) -> None:
    """Segments come faster than they are forced to disk: the next flush is for all of them."""
    for _ in range(1000):
        append_all(place.log, batch_of(1))
        place.log.roll(NOW)
    assert len(place.background.waiting) == 1
    while place.log.recovery_point < 1:
        assert count_calls(place.background.waiting.pop(0)) < 300  # ends one, and begins the next
    place.files.synced.clear()
    place.background.run()
    assert place.log.recovery_point == 1000
    synced = place.synced_names()
    assert len(synced) > 3000
    assert len(set(synced)) == len(synced)


def test_a_flush_that_waits_overtakes_one_in_the_background(place: Place) -> None:
    append_all(place.log, *(batch_of(1) for _ in range(4)))
    place.log.flush()
    assert place.log.recovery_point == 4
    place.background.run()
    assert place.log.recovery_point == 4
    assert place.errors == []
    assert place.log.leader_epochs.changed is False


def test_truncation_cancels_a_flush(place: Place) -> None:
    append_all(place.log, *(batch_of(1) for _ in range(4)))
    place.log.truncate_to(1)
    append_all(place.log, *(batch_of(1) for _ in range(2)))
    place.background.run()
    assert place.log.recovery_point <= 1
    place.log.flush()
    assert place.log.recovery_point == 3
    assert place.files.exists(place.log.path("leader-epoch-checkpoint"))


def test_an_error_in_the_background_is_reported_and_nothing_is_taken_as_flushed(
    place: Place,
) -> None:
    append_all(place.log, *(batch_of(1) for _ in range(4)))
    place.files.fail("sync", OSError(EIO, "on purpose"))
    place.background.run()
    assert [error.errno for error in place.errors] == [EIO]
    assert place.log.recovery_point == 0
    place.files.heal()
    place.log.flush()
    assert place.log.recovery_point == 4
    assert "leader-epoch-checkpoint.tmp" in place.synced_names()


def test_an_error_of_a_flush_that_was_overtaken_is_reported(place: Place) -> None:
    append_all(place.log, *(batch_of(1) for _ in range(4)))
    place.log.flush()
    place.files.fail("sync", OSError(EIO, "on purpose"))
    place.background.run()
    assert [error.errno for error in place.errors] == [EIO]


def test_a_flush_of_a_log_that_is_gone_is_no_error(place: Place) -> None:
    append_all(place.log, *(batch_of(1) for _ in range(4)))
    place.log.abandon()
    place.files.rename(place.log.directory, "/data/t-0.x-delete")
    place.background.run()
    assert place.errors == []


def test_a_flush_that_cannot_begin_forgets_nothing(place: Place) -> None:
    append_all(place.log, batch_of(1))
    place.files.fill("*.tmp")
    with pytest.raises(OSError, match="no room"):
        place.log.flush()
    place.files.heal()
    place.log.flush()
    assert place.log.recovery_point == 1
    assert "partition.metadata" in place.synced_names()
    assert place.files.exists(place.log.path("leader-epoch-checkpoint"))


def test_a_full_disk_does_not_stop_a_roll(place: Place) -> None:
    append_all(place.log, *(batch_of(1) for _ in range(3)))
    place.files.fill("*.tmp")  # the leader epochs cannot be written
    append_all(place.log, batch_of(1))
    assert len(place.log.segments) == 2
    place.files.heal()
    place.log.flush()
    assert place.log.recovery_point == 4
    assert place.files.exists(place.log.path("leader-epoch-checkpoint"))


def test_a_flush_after_a_flush_that_cannot_begin_is_reported(place: Place) -> None:
    append_all(place.log, *(batch_of(1) for _ in range(4)))
    append_all(place.log, *(batch_of(1) for _ in range(4)), leader_epoch=5)
    place.files.fill("*.tmp")
    place.background.run()
    assert [error.errno for error in place.errors] == [ENOSPC]
    assert place.log.recovery_point == 3


def test_an_error_of_a_waiting_flush_is_raised(place: Place) -> None:
    append_all(place.log, batch_of(1))
    place.files.fail("sync", OSError(EIO, "on purpose"))
    with pytest.raises(OSError, match="on purpose"):
        place.log.flush()
    assert place.log.recovery_point == 0


def test_a_closed_log_ignores_the_end_of_its_flushes(place: Place) -> None:
    append_all(place.log, *(batch_of(1) for _ in range(4)))
    place.log.close()
    place.background.run()
    assert place.errors == []
    again = reopen(place.log, is_clean=True)
    assert again.log_end_offset == 4


def test_the_epochs_on_disk_never_lag_behind_the_recovery_point(place: Place) -> None:
    for epoch in range(5):
        append_all(place.log, batch_of(1), leader_epoch=epoch)
    place.background.run()
    crashed = reopen(place.log, recovery_point=place.log.recovery_point)
    assert crashed.leader_epochs.entries == tuple((epoch, epoch) for epoch in range(5))


def test_flushing_remembers_when(place: Place) -> None:
    append_all(place.log, batch_of(1))
    place.clock.now_ms = NOW + 55
    place.log.flush()
    assert place.log.flush_state.flushed_ms == NOW + 55


def test_a_log_that_never_held_anything_is_closed_without_a_flush(place: Place) -> None:
    place.log.close()
    assert place.files.synced == []
    again = reopen(place.log, is_clean=True)
    append_all(again, batch_of(1))
    again.flush()
    expected = {"partition.metadata", "00000000000000000000.log", "t-0", "data"}
    assert expected <= set(place.synced_names())


def test_one_whose_only_batch_was_taken_back_is_flushed(place: Place) -> None:
    place.files.fill("*.log", room=SIZE - 1)
    with pytest.raises(OSError, match="no room"):
        append_all(place.log, batch_of(1))
    place.files.heal()
    place.log.close()
    assert "00000000000000000000.log" in place.synced_names()
