"""A clean that shares its chunks with a copy of the process."""

from __future__ import annotations

import gc
import os
import re
import shutil
from collections.abc import Callable, Sequence
from errno import ENOSPC
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.config.topic import LogConfig
from ottla.log.cleaner import array_sharing, cleaning_task
from ottla.log.cleaner.array_session import ArraySession
from ottla.log.cleaner.shared_chunks import Cut, cut
from ottla.log.log import Log
from ottla.log.startup.open_log import create_log
from ottla.model.ids import TopicPartition
from ottla.model.steps import run_to_end
from ottla.ports import Buffer, HelperFiles, SecondProcess, TwinGone
from ottla.records.control import ControlType, build_marker
from ottla.server.helper_main import OpenFile, OutputFile
from ottla.server.os_files import OsFiles
from ottla.server.twin_process import TwinProcess
from tests.support.cleaner import clean, clean_run, keyed
from tests.support.log import NOW, names_in, new_resources

CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), index_interval_bytes=100)
CHUNK_BYTES = 1500


class RandomTwin(TwinProcess):
    """Says by chance whether it has an answer, so that the chunks are shared in any way."""

    chance = Random(0)
    started = 0
    declined = 0

    def __init__(self, serve: Callable[[Buffer], bytes]) -> None:
        parent = os.getpid()

        def prepare() -> None:
            HelperFiles.open_output = partial(OutputFile, parent)

        super().__init__(serve, prepare)
        RandomTwin.started += 1

    def is_ready(self) -> bool:
        return self.chance.random() < 0.5

    def is_ready_soon(self) -> bool:
        return True

    def answer(self) -> Buffer:
        answer = super().answer()
        RandomTwin.declined += b'"declined"' in bytes(answer[:40])
        return answer


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all cleans use arrays and a copy of this process."""
    monkeypatch.setattr(cleaning_task, "ARRAYS_FROM_BYTES", 0)
    monkeypatch.setattr(array_sharing, "SHARED_FROM_BYTES", 0)
    monkeypatch.setattr(HelperFiles, "open", OpenFile)
    monkeypatch.setattr(HelperFiles, "open_output", partial(OutputFile, os.getppid()))
    RandomTwin.started = RandomTwin.declined = 0


def write(directory: Path, seed: int, *, is_transactional: bool = False) -> Log:
    """Write a log of random batches in a few segments."""
    resources = new_resources(OsFiles())
    log = create_log(resources, str(directory), TopicPartition("t", 0), bytes(16), CONFIG)
    chance = Random(seed)
    for number in range(140):
        records = [
            (
                f"k{chance.randrange(90)}",
                None if chance.random() < 0.1 else "v" * chance.randrange(99),
            )
            for _ in range(chance.randrange(1, 9))
        ]
        fields: dict[str, Any] = {"base_offset": log.log_end_offset}
        if chance.random() < 0.2:
            # Each is another producer; those that are still known keep their headers.
            fields |= {"producer_id": number, "producer_epoch": 0, "base_sequence": 0}
            fields["is_transactional"] = is_transactional
        batches = [keyed(*records, codec=chance.choice((0, 0, 3, 3, 4)), **fields)]
        if fields.get("is_transactional"):
            offset = log.log_end_offset + len(records)
            kind = chance.choice([ControlType.COMMIT, ControlType.ABORT])
            ids = {"producer_id": number, "producer_epoch": 0, "coordinator_epoch": 0}
            batches.append(build_marker(kind, timestamp=NOW, base_offset=offset, **ids))
        for batch in batches:
            log.append_as_follower(batch, memoryview(batch), 0, len(batch), NOW)
            log.write_queued()
        if number % 60 == 59:
            log.roll(NOW)
    log.high_watermark = log.log_end_offset
    log.roll(NOW)
    return log


def files_of(log: Log) -> dict[str, bytes]:
    names = names_in(log, ".log") + names_in(log, "index")
    return {name: Path(log.directory, name).read_bytes() for name in names}


def cleaned(
    directory: Path,
    seed: int,
    twin: Callable[[Callable[[Buffer], bytes]], Any] | None,
    *,
    map_bytes: int = 1 << 20,
    is_transactional: bool = False,
    before: Callable[[Log], None] = lambda log: None,
) -> dict[str, bytes]:
    """Write and clean a log; return its files."""
    log = write(directory, seed, is_transactional=is_transactional)
    before(log)
    SecondProcess.start = twin
    try:
        clean(log, map_bytes, CHUNK_BYTES)
    finally:
        SecondProcess.start = None
    found = files_of(log)
    shutil.rmtree(directory)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_two_processes_write_the_same_as_one(tmp_path: Path, seed: int) -> None:
    RandomTwin.chance = Random(seed)
    alone = cleaned(tmp_path / "t-0", seed, None)
    assert cleaned(tmp_path / "t-0", seed, RandomTwin) == alone
    assert RandomTwin.started >= 2
    assert not RandomTwin.declined


@pytest.mark.parametrize("seed", range(2))
def test_transactions_are_left_to_one_process(tmp_path: Path, seed: int) -> None:
    RandomTwin.chance = Random(seed)
    alone = cleaned(tmp_path / "t-0", seed, None, is_transactional=True)
    shared = cleaned(tmp_path / "t-0", seed, RandomTwin, is_transactional=True)
    assert shared == alone
    assert RandomTwin.started >= 2


@pytest.mark.parametrize("seed", range(2))
def test_a_full_map_ends_the_first_pass_at_the_same_batch(tmp_path: Path, seed: int) -> None:
    RandomTwin.chance = Random(seed)
    alone = cleaned(tmp_path / "t-0", seed, None, map_bytes=24 * 60)
    assert cleaned(tmp_path / "t-0", seed, RandomTwin, map_bytes=24 * 60) == alone


@pytest.mark.parametrize("seed", range(3))
def test_a_wrong_index_does_no_harm(tmp_path: Path, seed: int) -> None:
    RandomTwin.chance = Random(seed)

    def damage(log: Log) -> None:
        chance = Random(seed)
        for name in names_in(log, ".index")[:-1]:
            path = Path(log.directory, name)
            content = bytearray(path.read_bytes())
            for at in range(7, len(content), 8):
                if chance.random() < 0.2:
                    content[at] ^= 1 << chance.randrange(8)
            path.write_bytes(content)

    alone = cleaned(tmp_path / "t-0", seed, None, before=damage)
    assert cleaned(tmp_path / "t-0", seed, RandomTwin, before=damage) == alone


@pytest.mark.parametrize("seed", range(2))
def test_damage_is_reported_as_by_one_process(tmp_path: Path, seed: int) -> None:
    RandomTwin.chance = Random(seed)

    def damage(log: Log) -> None:
        path = Path(log.directory, names_in(log, ".log")[1])
        content = bytearray(path.read_bytes())
        content[Random(seed).randrange(len(content))] ^= 1
        path.write_bytes(content)

    errors = []
    for twin in (None, RandomTwin):
        with pytest.raises(Exception, match="position") as raised:
            cleaned(tmp_path / "t-0", seed, twin, before=damage)
        errors.append((type(raised.value), re.sub("position [0-9]+", "", str(raised.value))))
        shutil.rmtree(tmp_path / "t-0")
    assert errors[0] == errors[1]


class FullDisk(OutputFile):
    """A file that takes a few bytes."""

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        if position > 2000:
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        super().write(buffers, position)


@pytest.mark.parametrize("seed", range(2))
def test_an_error_of_a_write_is_an_error_of_the_clean(tmp_path: Path, seed: int) -> None:
    RandomTwin.chance = Random(seed)

    class FullTwin(RandomTwin):
        def __init__(self, serve: Callable[[Buffer], bytes]) -> None:
            def serve_full(request: Buffer) -> bytes:
                HelperFiles.open_output = partial(FullDisk, parent)
                return serve(request)

            parent = os.getpid()
            super().__init__(serve_full)

    with pytest.raises(OSError, match="No space left"):
        cleaned(tmp_path / "t-0", seed, FullTwin)


def test_a_copy_that_ends_leaves_its_work_to_the_process(tmp_path: Path) -> None:
    class DyingTwin(RandomTwin):
        def __init__(self, serve: Callable[[Buffer], bytes]) -> None:
            count = 0

            def serve_some(request: Buffer) -> bytes:
                nonlocal count
                count += 1
                if b'"map"' in bytes(request) and count == 3:
                    os._exit(3)
                return serve(request)

            super().__init__(serve_some)

    alone = cleaned(tmp_path / "t-0", 1, None)
    assert cleaned(tmp_path / "t-0", 1, DyingTwin) == alone


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_without_a_core_is_not_waited_for(tmp_path: Path, seed: int) -> None:
    class SlowTwin(RandomTwin):
        def is_ready_soon(self) -> bool:
            return self.chance.random() < 0.8

    RandomTwin.chance = Random(seed)
    alone = cleaned(tmp_path / "t-0", seed, None)
    assert cleaned(tmp_path / "t-0", seed, SlowTwin) == alone


def test_a_copy_that_ends_before_it_has_written_fails_the_task(tmp_path: Path) -> None:
    class DyingTwin(RandomTwin):
        def __init__(self, serve: Callable[[Buffer], bytes]) -> None:
            def serve_some(request: Buffer) -> bytes:
                if b'"write"' in bytes(request):
                    os._exit(3)
                return serve(request)

            super().__init__(serve_some)

        def is_ready(self) -> bool:
            return True

    log = write(tmp_path / "t-0", 1)
    before = files_of(log)
    SecondProcess.start = DyingTwin
    try:
        with pytest.raises(TwinGone):
            run_to_end(clean_run(log, chunk_bytes=CHUNK_BYTES).steps())
    finally:
        SecondProcess.start = None
    assert files_of(log) == before


def test_the_memory_of_a_clean_is_free_at_its_end(tmp_path: Path) -> None:
    gc.collect()
    gc.disable()
    try:
        cleaned(tmp_path / "t-0", 1, RandomTwin)
        assert not [each for each in gc.get_objects() if type(each) is ArraySession]
    finally:
        gc.enable()


def test_a_range_is_cut_where_batches_begin() -> None:
    assert cut(0, 100, 40, [10, 35, 38, 70, 99], (True, False)) == [
        Cut(0, 38, True, True),
        Cut(38, 70, True, True),
        Cut(70, 100, True, False),
    ]
    assert cut(5, 100, 40, [60], (False, True)) == [
        Cut(5, 45, False, False),
        Cut(45, 60, False, True),
        Cut(60, 100, True, True),
    ]
