"""The simulated disk: the semantics of real files, and what crashes and power failures leave."""

from __future__ import annotations

from collections.abc import Callable
from errno import EIO, ENOSPC
from pathlib import Path
from random import Random

import pytest

from ottla.memory_files import MemoryFiles
from ottla.ports import Files
from ottla.server.os_files import OsFiles
from ottla.sim.clock import VirtualClock
from ottla.sim.disk.disk import SimDisk
from ottla.sim.disk.faults import Crash, DiskFaults

HOME = "/d"


def make_disk(seed: int = 0) -> SimDisk:
    disk = SimDisk(VirtualClock(), Random(seed), DiskFaults(Random(seed), [HOME]))
    disk.make_dirs(HOME)
    disk.sync_dir("/")
    return disk


def put(files: Files, path: str, content: bytes, *, sync: bool = False) -> None:
    file = files.open(path, create=True, writable=True)
    file.pwritev([content], 0)
    if sync:
        file.sync()


def content(files: Files, path: str) -> bytes:
    file = files.open(path)
    return file.pread(file.size(), 0)


# -- the same as real files ---------------------------------------------------------------


def random_operation(files: Files, root: str, chance: Random) -> object:
    """Do one operation on a few names; return its result or its error."""
    names = [f"{root}/{name}" for name in ("a", "b", "sub/c", "sub/d")]
    path, other = chance.choice(names), chance.choice(names[:2])
    operations: list[Callable[[], object]] = [
        lambda: put(files, path, bytes([chance.randrange(256)]) * chance.randrange(1, 9)),
        lambda: files.open(path, writable=True).truncate(chance.randrange(12)),
        lambda: files.open(path, writable=True).pwritev([b"xy", b"", b"z"], chance.randrange(9)),
        lambda: files.open(path).pread(chance.randrange(9), chance.randrange(9)),
        lambda: files.open(path).size(),
        lambda: files.exists(path),
        lambda: sorted((e.name, e.is_dir, 0 if e.is_dir else e.size) for e in files.list(root)),
        lambda: files.stat(path).size,
        lambda: files.unlink(path),
        lambda: files.rename(f"{root}/a", other),
        lambda: files.make_dirs(f"{root}/sub"),
        lambda: files.remove_tree(f"{root}/sub"),
        lambda: files.sync_dir(root),
    ]
    try:
        return chance.choice(operations)()
    except OSError as error:
        return type(error).__name__


@pytest.mark.parametrize("seed", range(40))
def test_operations_do_what_they_do_on_real_files(seed: int, tmp_path: Path) -> None:
    real, memory, simulated = OsFiles(), MemoryFiles(), make_disk()
    memory.make_dirs(HOME)
    trees = ((real, str(tmp_path)), (memory, HOME), (simulated, HOME))
    for step in range(60):
        results = [random_operation(files, root, Random(f"{seed}/{step}")) for files, root in trees]
        assert results[0] == results[1] == results[2], f"step {step}"


def test_an_unlinked_file_lives_on_in_its_handles() -> None:
    disk = make_disk()
    put(disk, f"{HOME}/f", b"still here")
    file = disk.open(f"{HOME}/f")
    disk.unlink(f"{HOME}/f")
    assert file.pread(10, 0) == b"still here"


def test_a_mapping_and_its_file_are_the_same_bytes() -> None:
    disk = make_disk()
    put(disk, f"{HOME}/f", bytes(8))
    mapping = disk.open(f"{HOME}/f", writable=True).map(writable=True)
    mapping[2:4] = b"ab"
    assert content(disk, f"{HOME}/f") == b"\0\0ab\0\0\0\0"
    assert mapping[0:3] == b"\0\0a"


def test_touching_a_mapping_past_the_end_of_a_cut_file_is_caught() -> None:
    disk = make_disk()
    put(disk, f"{HOME}/f", bytes(8192))
    file = disk.open(f"{HOME}/f", writable=True)
    mapping = file.map(writable=False)
    file.truncate(100)
    with pytest.raises(AssertionError, match="past its end"):
        mapping[5000:5004]


# -- crashes and power failures -----------------------------------------------------------


def test_a_killed_process_leaves_everything_it_wrote() -> None:
    disk = make_disk()
    put(disk, f"{HOME}/f", b"written")
    disk.kill()
    disk.restart()
    assert content(disk, f"{HOME}/f") == b"written"


def test_a_dead_process_can_do_nothing_more() -> None:
    disk = make_disk()
    put(disk, f"{HOME}/f", b"old")
    file = disk.open(f"{HOME}/f", writable=True)
    disk.kill()
    with pytest.raises(Crash):
        file.pwritev([b"new"], 0)
    disk.restart()
    with pytest.raises(Crash):
        file.pwritev([b"new"], 0)
    assert content(disk, f"{HOME}/f") == b"old"


def test_synced_bytes_survive_and_others_may_not() -> None:
    disk = make_disk()
    put(disk, f"{HOME}/f", b"synced", sync=True)
    disk.sync_dir(HOME)
    disk.open(f"{HOME}/f", writable=True).pwritev([b" and more"], 6)
    disk.lose_unsynced()
    disk.restart()
    assert content(disk, f"{HOME}/f") == b"synced"


def test_a_synced_file_without_a_synced_name_is_lost() -> None:
    disk = make_disk()
    put(disk, f"{HOME}/f", b"synced", sync=True)
    disk.lose_unsynced()
    disk.restart()
    assert not disk.exists(f"{HOME}/f")


def test_syncing_a_directory_does_not_make_its_own_name_durable() -> None:
    disk = make_disk()
    disk.make_dirs(f"{HOME}/new")
    put(disk, f"{HOME}/new/f", b"synced", sync=True)
    disk.sync_dir(f"{HOME}/new")
    disk.lose_unsynced()
    disk.restart()
    assert disk.list(HOME) == []


def test_an_unsynced_rename_is_undone() -> None:
    disk = make_disk()
    put(disk, f"{HOME}/old", b"content", sync=True)
    put(disk, f"{HOME}/target", b"replaced", sync=True)
    disk.sync_dir(HOME)
    disk.rename(f"{HOME}/old", f"{HOME}/target")
    disk.lose_unsynced()
    disk.restart()
    assert content(disk, f"{HOME}/old") == b"content"
    assert content(disk, f"{HOME}/target") == b"replaced"


@pytest.mark.parametrize("seed", range(60))
def test_names_come_back_in_the_order_they_were_changed(seed: int) -> None:
    disk = make_disk(seed)
    put(disk, f"{HOME}/0", b"", sync=True)
    disk.sync_dir(HOME)
    for number in range(5):
        disk.rename(f"{HOME}/{number}", f"{HOME}/{number + 1}")
    disk.lose_power()
    disk.restart()
    assert len(disk.list(HOME)) == 1


@pytest.mark.parametrize("seed", range(60))
def test_a_power_failure_keeps_what_was_synced_whatever_else_it_does(seed: int) -> None:
    disk, chance = make_disk(seed), Random(seed)
    put(disk, f"{HOME}/f", b"s" * 700, sync=True)
    disk.sync_dir(HOME)
    file, end = disk.open(f"{HOME}/f", writable=True), 700
    for _ in range(4):
        size = chance.randrange(1, 900)
        file.pwritev([b"u" * size], end)
        end += size
    disk.lose_power()
    disk.restart()
    left = content(disk, f"{HOME}/f")
    assert left[:700] == b"s" * 700
    assert set(left[700:]) <= set(b"u\0")
    assert len(left) <= end


def test_power_failures_tear_writes_everywhere() -> None:
    sizes = set()
    for seed in range(200):
        disk = make_disk(seed)
        put(disk, f"{HOME}/f", b"", sync=True)
        disk.sync_dir(HOME)
        disk.open(f"{HOME}/f", writable=True).pwritev([b"u" * 50], 0)
        disk.lose_power()
        disk.restart()
        sizes.add(len(content(disk, f"{HOME}/f")))
    assert {0, 50} < sizes
    assert len(sizes) > 20


def test_a_crash_at_a_write_leaves_a_beginning_of_it() -> None:
    left = set()
    for seed in range(100):
        disk = make_disk(seed)
        put(disk, f"{HOME}/f", b"")
        disk.faults.operations_until_crash = 0
        with pytest.raises(Crash):
            disk.open(f"{HOME}/f", writable=True).pwritev([b"0123456789"], 0)
        disk.restart()
        left.add(content(disk, f"{HOME}/f"))
    assert left <= {b"0123456789"[:size] for size in range(11)}
    assert len(left) > 5


def test_a_crash_comes_after_as_many_changes_as_were_said() -> None:
    disk = make_disk()
    disk.faults.operations_until_crash = 2
    disk.make_dirs(f"{HOME}/one")
    disk.make_dirs(f"{HOME}/two")
    with pytest.raises(Crash):
        disk.make_dirs(f"{HOME}/three")


# -- errors -------------------------------------------------------------------------------


def test_a_full_disk_takes_what_fits_and_says_so() -> None:
    disk = make_disk()
    put(disk, f"{HOME}/f", b"12345")
    disk.faults.volumes[0].free_bytes = 3
    file = disk.open(f"{HOME}/f", writable=True)
    with pytest.raises(OSError, match="full") as caught:
        file.pwritev([b"abcdef"], 4)
    assert caught.value.errno == ENOSPC
    assert content(disk, f"{HOME}/f") == b"1234abcd"
    file.truncate(5)
    file.pwritev([b"xyz"], 5)
    assert content(disk, f"{HOME}/f") == b"1234axyz"


def test_overwriting_takes_no_room() -> None:
    disk = make_disk()
    put(disk, f"{HOME}/f", b"12345")
    disk.faults.volumes[0].free_bytes = 0
    put(disk, f"{HOME}/f", b"54321")
    assert content(disk, f"{HOME}/f") == b"54321"


def test_a_broken_volume_fails_and_the_others_do_not() -> None:
    faults = DiskFaults(Random(0), ["/one", "/two"])
    disk = SimDisk(VirtualClock(), Random(0), faults)
    for home in ("/one", "/two"):
        disk.make_dirs(home)
    faults.volumes[0].eio_probability = 1.0
    with pytest.raises(OSError, match="I/O") as caught:
        disk.list("/one")
    assert caught.value.errno == EIO
    assert disk.list("/two") == []


def test_a_failed_sync_is_never_made_good_by_a_later_one() -> None:
    disk = make_disk()
    put(disk, f"{HOME}/f", b"", sync=True)
    disk.sync_dir(HOME)
    file = disk.open(f"{HOME}/f", writable=True)
    file.pwritev([b"doomed"], 0)
    disk.faults.volumes[0].eio_probability = 1.0
    with pytest.raises(OSError, match="I/O"):
        file.sync()
    disk.faults.heal()
    file.sync()
    assert content(disk, f"{HOME}/f") == b"doomed"
    disk.lose_unsynced()
    disk.restart()
    assert content(disk, f"{HOME}/f") == b""
