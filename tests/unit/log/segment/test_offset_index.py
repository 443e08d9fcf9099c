"""The offset index: entries, lookups, its file while active and after."""

from __future__ import annotations

import pytest

from ottla.log.file_pool import FilePool
from ottla.log.segment.index_file import UNKNOWN
from ottla.log.segment.offset_index import OffsetIndex
from ottla.memory_files import MemoryFiles
from ottla.ports import Files, read_file
from ottla.testing.faulty_files import FaultyFiles

PATH = "00000000000000000100.index"
CAPACITY = 8 * 1000


def new_index(files: Files) -> OffsetIndex:
    return OffsetIndex(FilePool(files, 8), PATH, 100, 0, UNKNOWN)


def filled(files: Files, count: int) -> OffsetIndex:
    """Return entries for offsets 110, 120, ... at positions 1000, 2000, ..."""
    index = new_index(files)
    for number in range(1, count + 1):
        index.append(100 + 10 * number, 1000 * number, CAPACITY)
    return index


@pytest.mark.parametrize("count", [1, 2, 255, 256, 257, 600])
def test_lookup_finds_the_last_entry_at_or_before(count: int) -> None:
    index = filled(MemoryFiles(), count)
    assert index.entries == count
    assert index.lookup(99) == (100, 0)
    assert index.lookup(109) == (100, 0)
    for number in {1, count // 2 or 1, count}:
        assert index.lookup(100 + 10 * number) == (100 + 10 * number, 1000 * number)
        assert index.lookup(109 + 10 * number) == (100 + 10 * number, 1000 * number)
    assert index.lookup(2**40) == index.last() == (100 + 10 * count, 1000 * count)


def test_an_empty_index_points_to_the_start() -> None:
    index = new_index(MemoryFiles())
    assert index.lookup(10**6) == (100, 0)
    assert index.last() == (100, 0)


def test_entries_are_big_endian_pairs_of_relative_offset_and_position() -> None:
    files = MemoryFiles()
    index = filled(files, 2)
    index.trim()
    assert read_file(files, PATH).hex() == "0000000a000003e800000014000007d0"


@pytest.mark.parametrize(("bytes_wanted", "length"), [(67, 64), (64, 64), (71, 64), (72, 72)])
def test_the_active_file_is_as_long_as_whole_entries_fit(bytes_wanted: int, length: int) -> None:
    files = MemoryFiles()
    index = new_index(files)
    index.write(bytes_wanted)
    assert files.stat(PATH).size == length


def test_a_trimmed_file_has_its_entries_only_and_can_grow_again() -> None:
    files = MemoryFiles()
    index = filled(files, 300)
    index.write(CAPACITY)
    assert files.stat(PATH).size == CAPACITY
    index.trim()
    assert files.stat(PATH).size == 300 * 8
    assert index.lookup(115) == (110, 1000)
    index.append(5000, 10**6, CAPACITY)
    index.write(CAPACITY)
    assert files.stat(PATH).size == CAPACITY
    assert index.lookup(9000) == (5000, 10**6)
    assert index.lookup(3100) == (3100, 300_000)


def test_a_smaller_capacity_loses_no_entries() -> None:
    files = MemoryFiles()
    index = filled(files, 20)
    index.trim()
    index.append(1000, 10**6, 16)
    index.write(16)
    assert index.entries == 21
    assert index.lookup(300) == (300, 20_000)
    assert index.last() == (1000, 10**6)


@pytest.mark.parametrize("written", [0, 400])
def test_truncate_drops_batches_that_end_at_or_after(written: int) -> None:
    files = MemoryFiles()
    index = filled(files, 500)
    if written:
        index.write(CAPACITY)
    index.truncate_to(100 + 10 * 450)
    assert index.entries == 449
    index.truncate_to(100 + 10 * 10 + 1)
    assert index.last() == (200, 10_000)
    index.append(201, 10_001, CAPACITY)
    assert index.lookup(10**6) == (201, 10_001)
    index.truncate_to(0)
    assert index.entries == 0


def test_fullness_counts_the_waiting() -> None:
    index = filled(MemoryFiles(), 3)
    assert not index.is_full(32)
    assert index.is_full(32, waiting=1)
    assert index.is_full(24)
    assert index.is_full(31)


def test_a_full_disk_leaves_entries_in_memory() -> None:
    files = FaultyFiles(MemoryFiles())
    files.fill("*.index")
    index = filled(files, 300)
    assert index.lookup(3100) == (3100, 300_000)
    assert index.lookup(115) == (110, 1000)
    files.heal()
    index.trim()
    assert len(read_file(files, PATH)) == 300 * 8


@pytest.mark.parametrize(
    ("entries", "damage"),
    [
        ([(10, 1000), (20, 2000)], None),
        ([(20, 1000), (10, 2000)], "offsets run from 120 to 110"),
        ([(10, 2000), (20, 1000)], "positions run from 2000 to 1000"),
        ([(10, 1000), (0, 0)], "offsets run from 110 to 100"),
        ([(10, 1000), (20, 5000)], "the last position 5000"),
        ([(-5, 1000), (20, 2000)], "offsets run from 95"),
    ],
)
def test_damage_shows_at_the_ends(entries: list[tuple[int, int]], damage: str | None) -> None:
    files = MemoryFiles()
    content = b"".join(
        relative.to_bytes(4, "big", signed=True) + position.to_bytes(4, "big")
        for relative, position in entries
    )
    files.open(PATH, create=True, writable=True).pwritev([content], 0)
    index = OffsetIndex(FilePool(files, 8), PATH, 100, len(entries))
    found = index.damage(5000)
    assert (found is None) == (damage is None)
    assert damage is None or (found is not None and found.startswith(damage))


def test_valid_entries_stop_at_zeros_disorder_and_the_offset() -> None:
    files = MemoryFiles()
    index = filled(files, 700)
    index.write(CAPACITY)  # zeros follow the entries
    assert OffsetIndex.valid_entries(files, PATH, 100, 2**40) == 700
    assert OffsetIndex.valid_entries(files, PATH, 100, 150) == 4
    files.open(PATH, writable=True).pwritev([bytes(8)], 8 * 50)
    assert OffsetIndex.valid_entries(files, PATH, 100, 2**40) == 50
