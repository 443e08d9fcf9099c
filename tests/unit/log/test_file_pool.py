"""The pool keeps a bounded number of handles and closes what it drops."""

from __future__ import annotations

import os
from errno import EMFILE
from pathlib import Path

import pytest

from ottla.log.file_pool import FilePool
from ottla.log.segment.file_slice import FileSlice
from ottla.memory_files import MemoryFiles
from ottla.ports import File, Files, Mapping
from ottla.server.os_files import OsFiles
from ottla.testing.faulty_files import FaultyFiles

OUT_OF_DESCRIPTORS = OSError(EMFILE, "too many open files")


class Owner:
    """A small file that counts how often it was opened."""

    def __init__(self, files: Files, path: str) -> None:
        self.path = path
        self.opened = 0
        files.open(path, create=True, writable=True).pwritev([path.encode()[-8:]], 0)

    def open_file(self, files: Files) -> File:
        self.opened += 1
        return files.open(self.path)

    def open_map(self, files: Files) -> Mapping:
        self.opened += 1
        return files.open(self.path).map(writable=False)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_an_open_file_is_not_opened_again() -> None:
    files = MemoryFiles()
    pool, owner = FilePool(files, 4), Owner(files, "a")
    assert pool.file(owner) is pool.file(owner)
    assert owner.opened == 1


def test_the_least_recently_used_file_goes() -> None:
    files = MemoryFiles()
    pool = FilePool(files, 4)  # three files and a map
    owners = [Owner(files, name) for name in "abcd"]
    for owner in owners[:3]:
        pool.file(owner)
    pool.file(owners[0])
    pool.file(owners[3])
    pool.file(owners[0])
    assert owners[0].opened == 1
    pool.file(owners[1])
    assert owners[1].opened == 2
    assert len(pool) == 3


def test_descriptors_stay_bounded(tmp_path: Path) -> None:
    files = OsFiles()
    owners = [Owner(files, str(tmp_path / f"f{number}")) for number in range(100)]
    pool = FilePool(files, 8)
    before = open_descriptors()
    for owner in owners:
        pool.file(owner)
        pool.map(owner)
        assert open_descriptors() <= before + 8
    pool.close()
    assert open_descriptors() == before


def test_a_slice_keeps_its_file_open_after_eviction(tmp_path: Path) -> None:
    files = OsFiles()
    owners = [Owner(files, str(tmp_path / f"f{number}")) for number in range(10)]
    pool = FilePool(files, 4)
    piece: FileSlice | None = FileSlice(pool.file(owners[0]), 0, 2)
    assert piece is not None
    descriptor = piece.file.fileno()
    for owner in owners[1:]:
        pool.file(owner)
    os.unlink(owners[0].path)
    assert len(piece.read()) == 2
    piece = None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_discarded_map_is_closed(tmp_path: Path) -> None:
    files = OsFiles()
    owner = Owner(files, str(tmp_path / "f"))
    pool = FilePool(files, 4)
    mapping = pool.map(owner)
    pool.discard_map(owner)
    with pytest.raises(ValueError, match="closed"):
        mapping[0:1]


def test_half_is_given_back_when_the_process_runs_out_of_descriptors() -> None:
    files = FaultyFiles(MemoryFiles())
    owners = [Owner(files, f"f{number}") for number in range(9)]
    pool = FilePool(files, 64)
    for owner in owners[:8]:
        pool.file(owner)
    files.fail("open", OUT_OF_DESCRIPTORS, times=1)
    assert pool.file(owners[8]).path == "f8"
    assert len(pool) == 5


def test_running_out_with_nothing_to_give_back_is_an_error() -> None:
    files = FaultyFiles(MemoryFiles())
    files.fail("open", OUT_OF_DESCRIPTORS)
    with pytest.raises(OSError, match="too many"):
        FilePool(files, 4).open("f")
