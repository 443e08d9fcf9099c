"""The contract of Files, for the operating system's files, those in memory and faulty ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.memory_files import MemoryFiles
from ottla.ports import Files, read_file, write_file_atomically
from ottla.server.os_file import IOV_MAX, OsFile
from ottla.server.os_files import DirectoryInUse, OsFiles, lock_directory
from ottla.testing.fakes import FakeClock
from ottla.testing.faulty_files import FaultyFiles


@pytest.fixture(params=["os", "memory", "faulty"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    """Return a file system and an empty directory in it."""
    if request.param == "os":
        return OsFiles(), str(tmp_path)
    memory = MemoryFiles()
    memory.make_dirs("/base")
    return (memory if request.param == "memory" else FaultyFiles(memory)), "/base"


def test_what_is_written_is_read(place: tuple[Files, str]) -> None:
    files, base = place
    file = files.open(f"{base}/a", create=True, writable=True)
    file.pwritev([b"hello", bytearray(b" "), memoryview(b"world")], 3)
    assert file.size() == 14
    assert file.pread(100, 0) == b"\0\0\0hello world"
    assert file.pread(5, 3) == b"hello"
    assert file.pread(5, 14) == b""


def test_more_buffers_than_one_call_takes(place: tuple[Files, str]) -> None:
    files, base = place
    file = files.open(f"{base}/a", create=True, writable=True)
    buffers = [b"%05d" % number for number in range(2 * IOV_MAX + 7)]
    file.pwritev(buffers, 0)
    assert file.pread(5 * len(buffers), 0) == b"".join(buffers)


def test_truncate_cuts_and_extends_with_zeros(place: tuple[Files, str]) -> None:
    files, base = place
    file = files.open(f"{base}/a", create=True, writable=True)
    file.pwritev([b"abcdef"], 0)
    file.truncate(3)
    file.truncate(5)
    assert file.pread(10, 0) == b"abc\0\0"


def test_room_for_what_is_to_come_changes_nothing(place: tuple[Files, str]) -> None:
    files, base = place
    file = files.open(f"{base}/a", create=True, writable=True)
    file.pwritev([b"abc"], 0)
    file.allocate(3, 1_000_000)
    assert (file.size(), file.pread(10, 0)) == (3, b"abc")
    file.pwritev([b"def"], 3)
    assert (file.size(), file.pread(10, 0)) == (6, b"abcdef")
    file.truncate(6)
    if file.fileno() >= 0:
        assert os.fstat(file.fileno()).st_blocks * 512 < 100_000


def test_a_missing_file_is_not_made_by_opening_it(place: tuple[Files, str]) -> None:
    files, base = place
    with pytest.raises(FileNotFoundError):
        files.open(f"{base}/a")
    assert not files.exists(f"{base}/a")


def test_a_file_open_for_reading_cannot_be_written(place: tuple[Files, str]) -> None:
    files, base = place
    files.open(f"{base}/a", create=True)
    with pytest.raises(OSError, match=r"(Bad file descriptor|reading only)"):
        files.open(f"{base}/a").pwritev([b"x"], 0)


def test_a_map_sees_writes_and_outlives_its_file(place: tuple[Files, str]) -> None:
    files, base = place
    file = files.open(f"{base}/a", create=True, writable=True)
    file.truncate(64)
    mapping = file.map(writable=False)
    file.pwritev([b"xyz"], 10)
    file.close()
    assert len(mapping) == 64
    assert mapping[9:14] == b"\0xyz\0"
    mapping.close()


def test_a_writable_map_changes_the_file(place: tuple[Files, str]) -> None:
    files, base = place
    file = files.open(f"{base}/a", create=True, writable=True)
    file.truncate(8)
    mapping = file.map(writable=True)
    mapping[2:4] = b"ab"
    mapping.flush()
    assert file.pread(8, 0) == b"\0\0ab\0\0\0\0"
    with pytest.raises((TypeError, IndexError)):
        mapping[0:2] = b"abc"
    mapping.close()


def test_a_read_only_map_refuses_writes(place: tuple[Files, str]) -> None:
    files, base = place
    file = files.open(f"{base}/a", create=True, writable=True)
    file.truncate(8)
    mapping = file.map(writable=False)
    with pytest.raises(TypeError):
        mapping[0:1] = b"x"


def test_an_empty_file_cannot_be_mapped(place: tuple[Files, str]) -> None:
    files, base = place
    with pytest.raises(ValueError, match="empty"):
        files.open(f"{base}/a", create=True).map(writable=False)


def test_an_unlinked_file_lives_while_it_is_open(place: tuple[Files, str]) -> None:
    files, base = place
    file = files.open(f"{base}/a", create=True, writable=True)
    file.pwritev([b"abc"], 0)
    files.unlink(f"{base}/a")
    files.unlink(f"{base}/a")
    assert not files.exists(f"{base}/a")
    assert file.pread(3, 0) == b"abc"


def test_rename_replaces(place: tuple[Files, str]) -> None:
    files, base = place
    for name in ("a", "b"):
        files.open(f"{base}/{name}", create=True, writable=True).pwritev([name.encode()], 0)
    files.rename(f"{base}/a", f"{base}/b")
    assert [(e.name, e.size) for e in files.list(base)] == [("b", 1)]
    assert files.open(f"{base}/b").pread(1, 0) == b"a"
    with pytest.raises(FileNotFoundError):
        files.rename(f"{base}/a", f"{base}/c")


def test_a_directory_is_renamed_with_all_in_it(place: tuple[Files, str]) -> None:
    files, base = place
    files.make_dirs(f"{base}/one/two")
    file = files.open(f"{base}/one/two/f", create=True, writable=True)
    files.rename(f"{base}/one", f"{base}/three")
    file.pwritev([b"late"], 0)
    assert not files.exists(f"{base}/one")
    assert read_file(files, f"{base}/three/two/f") == b"late"
    files.remove_tree(f"{base}/three")
    files.remove_tree(f"{base}/three")
    assert files.list(base) == []


def test_list_tells_directories_and_sizes(place: tuple[Files, str]) -> None:
    files, base = place
    files.make_dirs(f"{base}/d")
    files.make_dirs(f"{base}/d")
    files.open(f"{base}/f", create=True, writable=True).pwritev([b"1234"], 0)
    assert sorted((e.name, e.is_dir) for e in files.list(base)) == [("d", True), ("f", False)]
    assert files.stat(f"{base}/f").size == 4
    assert files.stat(f"{base}/d").is_dir
    with pytest.raises(FileNotFoundError):
        files.list(f"{base}/missing")


def test_writing_atomically_replaces_and_leaves_nothing_beside(place: tuple[Files, str]) -> None:
    files, base = place
    for content in (b"a longer content", b"short"):
        write_file_atomically(files, f"{base}/f", content)
        assert read_file(files, f"{base}/f") == content
    assert [e.name for e in files.list(base)] == ["f"]


def test_volumes_have_room(place: tuple[Files, str]) -> None:
    files, base = place
    total, usable = files.free_bytes(base)
    assert 0 < usable <= total


def test_a_volume_is_synced_as_a_whole_or_not_at_all(place: tuple[Files, str]) -> None:
    files, root = place
    files.open(f"{root}/f", create=True, writable=True).pwritev([b"x"], 0)
    assert files.sync_volume(root) in (True, False)
    assert read_file(files, f"{root}/f") == b"x"


def test_sparse_bytes_take_no_memory() -> None:
    files = MemoryFiles()
    files.open("f", create=True, writable=True).truncate(10 * 1024 * 1024)
    total, usable = files.free_bytes("")
    assert total == usable


def test_memory_files_take_times_from_their_clock() -> None:
    clock = FakeClock(5)
    files = MemoryFiles(clock.wall_ms)
    file = files.open("f", create=True, writable=True)
    clock.now_ms = 9
    file.pwritev([b"x"], 0)
    assert files.stat("f").mtime_ms == 9


def test_a_partial_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may write only a part of the bytes: here seven at a time."""
    real_pwritev, real_pwrite = os.pwritev, os.pwrite
    monkeypatch.setattr(
        os, "pwritev", lambda fd, bufs, at: real_pwritev(fd, [b"".join(bufs)[:7]], at)
    )
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real_pwrite(fd, bytes(data)[:7], at))
    file = OsFiles().open(str(tmp_path / "f"), create=True, writable=True)
    parts = [b"abcde", b"", b"fghij", b"klmnopqrstuvwxyz"]
    file.pwritev(parts, 2)
    assert file.pread(100, 2) == b"".join(parts)


def test_a_file_closes_with_its_last_reference(tmp_path: Path) -> None:
    file: OsFile | None = OsFiles().open(str(tmp_path / "f"), create=True)
    assert file is not None
    fd = file.fileno()
    os.fstat(fd)
    file = None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_locked_directory_is_refused_until_it_is_released(tmp_path: Path) -> None:
    lock = lock_directory(str(tmp_path))
    with pytest.raises(DirectoryInUse, match="in use by another process"):
        lock_directory(str(tmp_path))
    lock.close()
    lock_directory(str(tmp_path)).close()


def test_another_process_finds_the_directory_locked(tmp_path: Path) -> None:
    lock = lock_directory(str(tmp_path))
    program = (
        "import fcntl, sys\n"
        "try: fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError: print('locked')\n"
    )
    # A record lock, as a Java broker takes it.
    arguments = [sys.executable, "-c", program, str(tmp_path / ".lock")]
    result = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert result.stdout == "locked\n"
    lock.close()
