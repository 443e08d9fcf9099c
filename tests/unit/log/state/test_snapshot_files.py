"""Snapshots of many producers: their size, the background that writes them, and reading them."""

from __future__ import annotations

from sys import getsizeof

import pytest

from ottla.config.topic import LogConfig
from ottla.log.log import Log
from ottla.log.state import snapshot_files
from ottla.log.state.producer_snapshot import MOST_WITH_OLDER_BATCHES, decode_snapshot
from ottla.log.state.producer_states import ProducerStates
from ottla.log.state.snapshot_files import PRODUCERS_AT_A_TIME
from ottla.ports import read_file
from ottla.sim.background import DeferredBackground
from ottla.testing.faulty_files import FaultyFiles
from tests.support.log import (
    NOW,
    append_all,
    batch_of,
    names_in,
    new_log,
    new_resources,
    reopen,
)

HEADER_BYTES = 10
ENTRY_BYTES = 46


def with_producers(count: int, batches: int = 1) -> tuple[Log, DeferredBackground]:
    """Return a log whose background works when it is told to."""
    resources = new_resources()
    background = resources.background = DeferredBackground()
    log = new_log(LogConfig(), resources)
    for number in range(batches):
        append_all(log, *(batch_of(producer_id=pid, base_sequence=number) for pid in range(count)))
    return log, background


def snapshot_of(log: Log, name: str) -> bytes:
    return read_file(log.resources.files, log.path(name))


def test_a_snapshot_of_many_producers_has_an_entry_for_each() -> None:
    count = MOST_WITH_OLDER_BATCHES + 1
    log, background = with_producers(count, batches=3)
    log.roll(NOW)
    background.finish()
    (name,) = names_in(log, ".snapshot")
    content = snapshot_of(log, name)
    assert len(content) == HEADER_BYTES + count * ENTRY_BYTES
    found = decode_snapshot(content)
    assert found.keys() == log.producers.entries.keys()
    assert all(entry.batches == log.producers.entries[p].batches[-1:] for p, entry in found.items())


def test_a_producer_takes_less_than_half_a_kilobyte() -> None:
    states = ProducerStates()
    for number in range(6):
        states.append(7, 1, number, number, 2**40 + number, 2**40 + number, NOW)
    entry = states.entries[7]
    parts = (entry, entry.packed, entry.last_timestamp, entry.producer_epoch)
    assert len(entry.batches) == 5
    assert sum(map(getsizeof, parts)) < 400


def test_a_roll_encodes_many_producers_in_slices_off_the_loop() -> None:
    count = 3 * PRODUCERS_AT_A_TIME + 1
    log, background = with_producers(count)
    before = dict(log.producers.entries)
    log.roll(NOW)
    assert names_in(log, ".snapshot") == []
    append_all(log, batch_of(producer_id=count + 1))  # is not in the snapshot of the roll
    steps = 0
    while not log.snapshots.offsets:
        assert background.run_one()
        background.deliver()
        steps += 1
    assert steps >= 3
    assert log.snapshots.offsets == [count]
    assert decode_snapshot(snapshot_of(log, f"{count:020}.snapshot")) == before
    log.flush()
    assert reopen(log, recovery_point=log.recovery_point).producers.entries.keys() == {
        *before,
        count + 1,
    }


def test_a_crash_before_the_snapshot_is_whole_only_costs_reading() -> None:
    log, background = with_producers(PRODUCERS_AT_A_TIME + 1)
    log.roll(NOW)
    background.run_one()
    again = reopen(log)
    assert again.producers.entries == log.producers.entries
    assert names_in(again, ".tmp") == []


@pytest.mark.parametrize("action", ["truncate", "truncate fully", "delete the segments", "close"])
def test_a_snapshot_that_is_not_wanted_any_more_is_dropped(action: str) -> None:
    count = PRODUCERS_AT_A_TIME + 1
    log, background = with_producers(count)
    log.roll(NOW)
    match action:
        case "truncate":
            log.truncate_to(5)
        case "truncate fully":
            log.truncate_fully(5)
        case "delete the segments":
            append_all(log, batch_of())
            log.roll(NOW)
            log.advance_log_start(log.log_end_offset)
            assert log.delete_old_segments(NOW) == 2
        case "close":
            log.close()
    background.finish()
    assert f"{count:020}.snapshot" not in names_in(log, ".snapshot") or action == "close"
    assert names_in(log, ".snapshot.tmp") == []
    assert log.snapshots.offsets == sorted(log.snapshots.offsets)


def test_another_roll_meanwhile_writes_no_second_snapshot() -> None:
    count = PRODUCERS_AT_A_TIME + 1
    log, background = with_producers(count)
    log.roll(NOW)
    append_all(log, batch_of())
    log.roll(NOW)
    background.finish()
    assert log.snapshots.offsets == [count]


def test_a_disk_that_fails_meanwhile_is_reported() -> None:
    resources = new_resources(FaultyFiles(new_resources().files))
    background = resources.background = DeferredBackground()
    log = new_log(LogConfig(), resources)
    append_all(log, *(batch_of(producer_id=pid) for pid in range(PRODUCERS_AT_A_TIME + 1)))
    failed: list[str] = []
    resources.on_error = lambda directory, error: failed.append(directory)
    log.roll(NOW)
    resources.files.remove_tree(log.directory)
    background.finish()
    assert log.directory in failed


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_snapshot_that_cannot_be_read_is_rebuilt_from_the_log(
    is_clean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = with_producers(20)
    log.close()
    monkeypatch.setattr(snapshot_files, "MOST_BYTES", 100)
    notes: list[str] = []
    again = reopen(log, is_clean=is_clean, recovery_point=log.written_end, notes=notes)
    assert again.producers.entries == log.producers.entries
    assert [note for note in notes if "read from the log instead" in note]
