"""The time index: strictly rising timestamps, a slot kept for the end."""

from __future__ import annotations

import pytest

from ottla.log.file_pool import FilePool
from ottla.log.segment.index_file import UNKNOWN
from ottla.log.segment.time_index import TimeIndex
from ottla.memory_files import MemoryFiles
from ottla.ports import Files, read_file

PATH = "00000000000000000100.timeindex"
CAPACITY = 12 * 1000


def new_index(files: Files) -> TimeIndex:
    return TimeIndex(FilePool(files, 8), PATH, 100, 0, UNKNOWN)


def filled(files: Files, count: int) -> TimeIndex:
    """Return timestamps 1010, 1020, ... at offsets 101, 102, ..."""
    index = new_index(files)
    for number in range(1, count + 1):
        index.append(1000 + 10 * number, 100 + number, CAPACITY)
    return index


@pytest.mark.parametrize("count", [1, 256, 600])
def test_lookup_finds_the_last_entry_at_or_before(count: int) -> None:
    index = filled(MemoryFiles(), count)
    assert index.lookup(-1) == (-1, 100)
    assert index.lookup(1009) == (-1, 100)
    assert index.lookup(1010) == (1010, 101)
    assert index.lookup(2**63 + 5) == index.last() == (1000 + 10 * count, 100 + count)


def test_only_larger_timestamps_are_added() -> None:
    index = filled(MemoryFiles(), 2)
    index.append(1020, 110, CAPACITY)
    index.append(900, 111, CAPACITY)
    assert index.entries == 2
    index.append(1021, 112, CAPACITY)
    assert index.last() == (1021, 112)


def test_a_batch_without_timestamp_is_not_added() -> None:
    index = new_index(MemoryFiles())
    index.append(-1, 100, CAPACITY)
    assert index.entries == 0
    index.append(0, 100, CAPACITY)
    assert index.last() == (0, 100)


def test_entries_are_timestamp_and_relative_offset() -> None:
    files = MemoryFiles()
    index = filled(files, 2)
    index.trim()
    assert read_file(files, PATH).hex() == "00000000000003f20000000100000000000003fc00000002"


@pytest.mark.parametrize(("bytes_wanted", "length"), [(67, 60), (60, 60), (72, 72)])
def test_the_active_file_is_as_long_as_whole_entries_fit(bytes_wanted: int, length: int) -> None:
    files = MemoryFiles()
    new_index(files).write(bytes_wanted)
    assert files.stat(PATH).size == length


def test_one_slot_is_kept_for_the_end() -> None:
    index = filled(MemoryFiles(), 3)
    assert not index.is_full(60)
    assert index.is_full(60, waiting=1)
    assert index.is_full(48)


def test_truncate_goes_by_offset() -> None:
    index = filled(MemoryFiles(), 300)
    index.truncate_to(350)
    assert index.last() == (3490, 349)
    index.truncate_to(104)
    assert index.last() == (1030, 103)
    index.truncate_to(100)
    assert index.entries == 0


@pytest.mark.parametrize(
    ("entries", "is_damaged"),
    [
        ([(5, 1), (6, 2)], False),
        ([(6, 1), (5, 2)], True),
        ([(5, 2), (6, 1)], True),
        ([(5, 1), (0, 0)], True),
        ([(-7, 1), (6, 2)], True),
    ],
)
def test_damage_shows_at_the_ends(entries: list[tuple[int, int]], is_damaged: bool) -> None:
    files = MemoryFiles()
    content = b"".join(
        timestamp.to_bytes(8, "big", signed=True) + relative.to_bytes(4, "big")
        for timestamp, relative in entries
    )
    files.open(PATH, create=True, writable=True).pwritev([content], 0)
    index = TimeIndex(FilePool(files, 8), PATH, 100, len(entries))
    assert (index.damage() is not None) == is_damaged


def test_valid_entries_stop_at_zeros_and_the_offset() -> None:
    files = MemoryFiles()
    filled(files, 300).write(CAPACITY)
    assert TimeIndex.valid_entries(files, PATH, 100, 2**40) == 300
    assert TimeIndex.valid_entries(files, PATH, 100, 110) == 9
