"""Files that fail as they are told, and what they record."""

from __future__ import annotations

from collections.abc import Callable
from errno import EIO, ENOSPC

import pytest

from ottla.memory_files import MemoryFiles
from ottla.testing.faulty_files import FaultyFiles, Operation


@pytest.fixture
def files() -> FaultyFiles:
    files = FaultyFiles(MemoryFiles())
    files.make_dirs("/data")
    return files


def test_a_full_disk_takes_the_first_bytes_until_it_heals(files: FaultyFiles) -> None:
    file = files.open("/data/a.log", create=True, writable=True)
    files.fill("*.log", room=3)
    file.pwritev([b"abc"], 0)
    with pytest.raises(OSError, match="no room") as caught:
        file.pwritev([b"de", b"fg"], 3)
    assert (caught.value.errno, caught.value.filename) == (ENOSPC, "/data/a.log")
    assert file.pread(10, 0) == b"abcdef"
    files.heal()
    file.pwritev([b"de", b"fg"], 3)
    assert file.pread(10, 0) == b"abcdefg"


def test_only_matching_paths_fail(files: FaultyFiles) -> None:
    files.fill("*.log")
    files.open("/data/a.index", create=True, writable=True).pwritev([b"abc"], 0)
    assert files.stat("/data/a.index").size == 3


def test_so_many_calls_fail_after_so_many_that_succeed(files: FaultyFiles) -> None:
    file = files.open("/data/a", create=True, writable=True)
    files.fail("sync", after=1, times=2)
    file.sync()
    for _ in range(2):
        with pytest.raises(OSError, match="sync failed on purpose"):
            file.sync()
    file.sync()
    assert files.synced == ["/data/a", "/data/a"]


def test_only_new_files_cannot_be_created(files: FaultyFiles) -> None:
    files.open("/data/old", create=True)
    files.fail("create", OSError(ENOSPC, "full"))
    files.open("/data/old", create=True)
    with pytest.raises(OSError, match="full"):
        files.open("/data/new", create=True)
    assert not files.exists("/data/new")


@pytest.mark.parametrize("operation", ["open", "truncate", "sync_dir", "list"])
def test_each_operation_fails_with_eio_by_default(files: FaultyFiles, operation: Operation) -> None:
    file = files.open("/data/a", create=True, writable=True)
    calls: dict[str, Callable[[], object]] = {
        "open": lambda: files.open("/data/a"),
        "truncate": lambda: file.truncate(0),
        "sync_dir": lambda: files.sync_dir("/data"),
        "list": lambda: files.list("/data"),
    }
    calls[operation]()
    files.fail(operation)
    with pytest.raises(OSError, match=f"{operation} failed on purpose") as caught:
        calls[operation]()
    assert caught.value.errno == EIO


def test_disk_accesses_are_recorded(files: FaultyFiles) -> None:
    file = files.open("/data/a", create=True, writable=True)
    file.pwritev([b"ab", b"cd"], 0)
    file.pread(3, 0)
    files.sync_dir("/data")
    assert files.opened == ["/data/a"]
    assert files.writes == [("/data/a", 2)]
    assert files.bytes_read == 3
    assert files.synced == ["/data"]
