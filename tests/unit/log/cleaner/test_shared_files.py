"""A helper process that reads and writes the files of a clean itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from errno import EIO, ENOSPC
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from ottla.config.topic import LogConfig
from ottla.log.cleaner import cleaning_task
from ottla.log.log import Log
from ottla.log.startup.open_log import create_log
from ottla.model.ids import TopicPartition
from ottla.model.steps import run_to_end
from ottla.ports import Buffer, HelperFiles, SecondThread, SharedOutput
from ottla.server.helper_files import OpenFile, OutputFile
from ottla.server.helper_main import Beside
from ottla.server.os_files import OsFiles
from ottla.testing.fakes import InlineBackground
from tests.support.cleaner import clean, clean_run, fill, keyed, seen
from tests.support.cleaner_process import CHUNK_BYTES, CleanerProcess
from tests.support.log import names_in, new_resources

T = TypeVar("T")

COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), index_interval_bytes=200)


def log_on_disk(directory: Path) -> Log:
    """Return a log with all kinds of batches in many segments."""
    resources = new_resources(OsFiles())
    log = create_log(resources, str(directory / "t-0"), TopicPartition("t", 0), bytes(16), COMPACT)
    for number in range(60):
        records = [(f"k{(number * 7 + n) % 400}", None if n == 3 else "v" * 90) for n in range(9)]
        fill(log, [keyed(*records, codec=(0, 3, 4)[number % 3])])
    return log


@pytest.fixture
def helper() -> Iterator[CleanerProcess]:
    helper = CleanerProcess()
    yield helper
    helper.lanes.stop()


@pytest.fixture
def shared_files() -> Iterator[None]:
    """Let tasks in this process open files."""
    HelperFiles.open = OpenFile
    yield
    HelperFiles.open = HelperFiles.open_output = None


@pytest.mark.parametrize("is_large", [False, True], ids=["plain", "arrays"])
@pytest.mark.parametrize("serves_clients", [False, True], ids=["alone", "beside clients"])
def test_a_helper_process_reads_and_writes_the_files(
    tmp_path: Path, helper: CleanerProcess, is_large: bool, serves_clients: bool
) -> None:
    expected, log = log_on_disk(tmp_path / "here"), log_on_disk(tmp_path / "helper")
    clean(expected)
    helper.serves_clients = serves_clients
    helper.clean(log, is_large=is_large)
    sizes = [len(answer) for answer in helper.answers if isinstance(answer, bytes)]
    assert max(sizes) < CHUNK_BYTES, "the batches are not in the answers"
    assert seen(log) == seen(expected)
    names = names_in(expected, ".log") + names_in(expected, "index")
    assert len(names) > 5
    for name in names:
        found = (tmp_path / "helper" / "t-0" / name).read_bytes()
        assert found == (tmp_path / "here" / "t-0" / name).read_bytes()


class CountingBackground(InlineBackground):
    """Counts the work in the background."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs = 0

    def submit(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        """Do it at once."""
        self.jobs += 1
        super().submit(work, done)


def test_the_background_creates_and_finishes_files_and_does_nothing_in_between(
    tmp_path: Path, helper: CleanerProcess
) -> None:
    log, background = log_on_disk(tmp_path), CountingBackground()
    log.resources.background = background
    segments = len(log.segments) - 1
    helper.clean(log, is_large=False)
    outputs = len(log.segments) - 1
    assert outputs < segments < len(helper.answers)
    # Before and after: the aborted transactions, the sizes of all files, the directory.
    assert background.jobs == 3 + 3 * outputs, "each is created, finished and renamed"


@pytest.mark.skipif(sys.platform != "linux", reason="it looks at /proc")
def test_a_clean_takes_one_processor_while_clients_are_served(
    tmp_path: Path, helper: CleanerProcess
) -> None:
    helper.serves_clients = True
    helper.clean(log_on_disk(tmp_path / "beside"), is_large=True)
    assert threads_of(helper) == 1
    helper.serves_clients = False
    helper.clean(log_on_disk(tmp_path / "alone"), is_large=True)
    assert threads_of(helper) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="it looks at /proc")
def test_a_helper_process_has_a_lower_priority_than_its_broker(
    tmp_path: Path, helper: CleanerProcess
) -> None:
    """It leads a session: the system may share the processor between sessions."""
    helper.clean(log_on_disk(tmp_path), is_large=False)
    pid = helper.lanes.pids["c"]
    assert os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getsid(pid) == pid
    assert os.getpgid(pid) == pid, "Ctrl-C is for the broker"


def threads_of(helper: CleanerProcess) -> int:
    return len(os.listdir(f"/proc/{helper.lanes.pids['c']}/task"))


class FullDisk:
    """A file that takes a few bytes."""

    def __init__(self, path: str) -> None:
        self._left = 3000

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        self._left -= sum(map(len, buffers))
        if self._left < 0:
            raise OSError(ENOSPC, os.strerror(ENOSPC))

    def close(self) -> None:
        pass


def log_of_large_segments(directory: Path, *, segments: int, batches: int) -> Log:
    """Return a log whose segments the helper reads in several tasks."""
    resources = new_resources(OsFiles())
    log = create_log(resources, str(directory / "t-0"), TopicPartition("t", 0), bytes(16), COMPACT)
    for segment in range(segments):
        numbers = range(segment * batches, (segment + 1) * batches)
        records = [[(f"k{(each * 7 + n) % 900}", "v" * 90) for n in range(9)] for each in numbers]
        fill(log, [keyed(*each, codec=(0, 3, 4)[len(each) % 3]) for each in records])
    return log


class NotedFile(OpenFile):
    """A file that notes what is read from it."""

    reads: list[tuple[str, int, int]]

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._path = path

    def read_into(self, target: memoryview, position: int) -> int:
        self.reads.append((self._path, position, len(target)))
        return super().read_into(target, position)


@pytest.fixture(params=[False, True], ids=["one thread", "two threads"])
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    SecondThread.start = Beside().start if request.param else None
    yield
    SecondThread.start = None


@pytest.fixture(params=[False, True], ids=["plain", "arrays"])
def session(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning_task, "BUSY_FROM_BYTES", 1 << 40)
    monkeypatch.setattr(cleaning_task, "ARRAYS_FROM_BYTES", 0 if request.param else 1 << 40)


def test_each_task_goes_on_where_the_one_before_has_read_ahead(
    tmp_path: Path, shared_files: None, threads: None, session: None
) -> None:
    NotedFile.reads = []
    HelperFiles.open = NotedFile
    expected = log_of_large_segments(tmp_path / "here", segments=2, batches=150)
    log = log_of_large_segments(tmp_path / "there", segments=2, batches=150)
    sizes = [segment.size for segment in list(log.segments)[:2]]
    assert min(sizes) > 2 * 16 * CHUNK_BYTES
    clean(log, chunk_bytes=CHUNK_BYTES)
    assert sum(size for _, _, size in NotedFile.reads) == 2 * sum(sizes), "in each of two passes"
    HelperFiles.open = None
    clean(expected, chunk_bytes=CHUNK_BYTES)
    assert seen(log) == seen(expected)


def test_the_broker_reads_what_the_helper_cannot_read_ahead(
    tmp_path: Path, shared_files: None, threads: None, session: None
) -> None:
    class BrokenFile(OpenFile):
        def read_into(self, target: memoryview, position: int) -> int:
            if position >= 16 * CHUNK_BYTES:
                raise OSError(EIO, os.strerror(EIO))
            return super().read_into(target, position)

    HelperFiles.open = BrokenFile
    expected = log_of_large_segments(tmp_path / "here", segments=1, batches=150)
    log = log_of_large_segments(tmp_path / "there", segments=1, batches=150)
    clean(log, chunk_bytes=CHUNK_BYTES)
    HelperFiles.open = None
    clean(expected, chunk_bytes=CHUNK_BYTES)
    assert seen(log) == seen(expected)


@pytest.mark.skipif(sys.platform != "linux", reason="it looks at /proc")
def test_only_the_last_segment_is_stored_while_it_is_written(
    tmp_path: Path, shared_files: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are forced to disk while the next ones are written."""
    begun: list[str] = []

    def note(fd: int, position: int, length: int, advice: int) -> None:
        begun.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)

    monkeypatch.setattr(os, "posix_fadvise", note)
    HelperFiles.open_output = partial(OutputFile, os.getppid())
    resources = new_resources(OsFiles())
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=3_000_000)
    log = create_log(resources, str(tmp_path / "t-0"), TopicPartition("t", 0), bytes(16), config)
    for number in range(3):
        fill(log, [keyed((f"k{number}-{n}", "v" * 100_000)) for n in range(25)])
    clean(log)
    last = list(log.segments)[2].base_offset
    assert begun == [f"{last:020}.log.cleaned"] * len(begun)
    assert begun


def test_an_error_of_a_write_is_an_error_of_the_clean(tmp_path: Path, shared_files: None) -> None:
    HelperFiles.open_output = FullDisk
    log = log_on_disk(tmp_path)
    before = seen(log)
    with pytest.raises(OSError, match="No space left") as raised:
        run_to_end(clean_run(log).steps())
    assert raised.value.errno == ENOSPC
    assert seen(log) == before
    assert not names_in(log, ".cleaned")


def test_the_broker_writes_if_the_helper_cannot(tmp_path: Path, shared_files: None) -> None:
    def refuse(path: str) -> SharedOutput:
        raise PermissionError(path)

    HelperFiles.open_output = refuse
    expected, log = log_on_disk(tmp_path / "here"), log_on_disk(tmp_path / "refused")
    clean(log)
    HelperFiles.open_output = partial(OutputFile, os.getppid())
    clean(expected)
    assert seen(log) == seen(expected)


def test_nothing_is_written_after_the_end_of_the_broker(tmp_path: Path) -> None:
    path = tmp_path / "x.cleaned"
    path.touch()
    with pytest.raises(ProcessLookupError):
        OutputFile(os.getppid() + 1, str(path))
    file = OutputFile(os.getppid(), str(path))
    file.write([b"%d," % number for number in range(3000)], 0)
    file.close()
    assert path.read_bytes() == b"".join(b"%d," % number for number in range(3000))
