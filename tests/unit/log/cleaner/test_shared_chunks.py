"""A clean that is shared with a copy of the helper process finds what one process finds."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from ottla.config.topic import LogConfig
from ottla.log.cleaner.clean_run import DamagedRecords
from ottla.log.log import Log
from ottla.log.startup.open_log import create_log
from ottla.model.ids import TopicPartition
from ottla.records.control import ControlType, build_marker
from ottla.server.os_files import OsFiles
from tests.support.cleaner import clean, keyed, roll, seen
from tests.support.cleaner_process import CHUNK_BYTES, CleanerProcess
from tests.support.log import NOW, names_in, new_resources

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2,
    reason="it looks at /proc, and one processor is not shared",
)

COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), index_interval_bytes=200)
KEYS = 500


@pytest.fixture
def helper() -> Iterator[CleanerProcess]:
    helper = CleanerProcess()
    yield helper
    helper.lanes.stop()


def log_with(
    directory: Path,
    batches: Callable[[Random], list[bytearray]],
    config: LogConfig = COMPACT,
    segments: int = 3,
) -> Log:
    """Return a log of segments with random batches, the same each time."""
    log = create_log(
        new_resources(OsFiles()), str(directory), TopicPartition("t", 0), bytes(16), config
    )
    chance = Random(1)
    for epoch in range(segments):
        add_segment(log, batches(chance), epoch)
    return log


def add_segment(log: Log, batches: list[bytearray], epoch: int) -> None:
    """Append batches of a leader epoch as a follower does, and roll."""
    for batch in batches:
        batch[:8] = log.log_end_offset.to_bytes(8, "big")
        batch[12:16] = epoch.to_bytes(4, "big")
        log.append_as_follower(batch, memoryview(batch), 0, len(batch), NOW)
        log.write_queued()
        log.high_watermark = log.log_end_offset
    roll(log)


def ordinary(
    chance: Random, codecs: tuple[int, ...] = (0, 3, 4), count: int = 80
) -> list[bytearray]:
    return [some_records(chance, codec=chance.choice(codecs)) for _ in range(count)]


def some_records(chance: Random, *, codec: int = 0, most: int = 15) -> bytearray:
    values = [None, "v" * 20, "w" * 100, "x" * 190]
    records = [
        (f"key-{chance.randrange(KEYS)}", chance.choice(values))
        for _ in range(chance.randrange(1, most))
    ]
    return keyed(*records, codec=codec)


def with_large_batches(chance: Random) -> list[bytearray]:
    """Return batches of which some are larger than several chunks."""
    large = [some_records(chance, most=200) for _ in range(10)]
    return [*ordinary(chance, count=20), *large, *ordinary(chance, count=20)]


def with_a_transaction(chance: Random) -> list[bytearray]:
    """Return control batches, too, which need what was in the chunks before."""
    producer_id = chance.randrange(1000)
    in_transaction = keyed(
        ("a", "b"),
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    marker = build_marker(
        ControlType.ABORT,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=NOW,
        base_offset=0,
    )
    return [*ordinary(chance, count=200), in_transaction, marker, *ordinary(chance, count=30)]


def with_tiny_batches(chance: Random) -> list[bytearray]:
    return [some_records(chance, most=2) for _ in range(400)]


def files_of(log: Log) -> dict[str, bytes]:
    names = names_in(log, ".log") + names_in(log, "index")
    return {name: (Path(log.directory) / name).read_bytes() for name in names}


KINDS = [ordinary, with_large_batches, with_a_transaction, with_tiny_batches]


@pytest.mark.parametrize("batches", KINDS)
@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("tiered", [False, True], ids=["local", "tiered"])
def test_two_processes_write_the_same_files_as_one(
    tmp_path: Path,
    helper: CleanerProcess,
    batches: Callable[[Random], list[bytearray]],
    rounds: int,
    tiered: bool,
) -> None:
    config = LogConfig(
        cleanup_policy=frozenset({"compact"}),
        index_interval_bytes=200,
        remote_storage_enable=tiered,
    )
    expected = log_with(tmp_path / "t-0", batches, config)
    log = log_with(tmp_path / "u-0", batches, config)
    copies: set[int] = set()
    helper.on_answer = lambda: copies.update(helper.copies())
    for number in range(rounds):
        if number:
            for each in expected, log:
                add_segment(each, batches(Random(2)), 3)
        clean(expected, chunk_bytes=CHUNK_BYTES)
        helper.clean(log, is_large=True)
        log.cleaned_upto = expected.cleaned_upto
    assert copies, "a part of the work is done by a copy of the helper process"
    assert files_of(log) == files_of(expected)
    helper.finish()
    assert not helper.copies(), "it has ended"


def test_no_copy_is_made_while_clients_are_served(tmp_path: Path, helper: CleanerProcess) -> None:
    copies: set[int] = set()
    helper.on_answer = lambda: copies.update(helper.copies())
    helper.serves_clients = True
    helper.clean(log_with(tmp_path / "t-0", ordinary), is_large=True)
    assert not copies


def test_clients_may_come_and_go_during_a_clean(tmp_path: Path, helper: CleanerProcess) -> None:
    expected, log = log_with(tmp_path / "t-0", ordinary), log_with(tmp_path / "u-0", ordinary)

    def change() -> None:
        helper.serves_clients = not helper.serves_clients

    helper.on_answer = change
    clean(expected)
    helper.clean(log, is_large=True)
    assert files_of(log) == files_of(expected)


@pytest.mark.parametrize("answers", range(2, 12, 3))
def test_a_copy_that_ends_is_not_needed(
    tmp_path: Path, helper: CleanerProcess, answers: int
) -> None:
    expected, log = log_with(tmp_path / "t-0", ordinary), log_with(tmp_path / "u-0", ordinary)
    killed: list[int] = []

    def kill() -> None:
        if len(helper.answers) >= answers and not killed:
            for pid in helper.copies():
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    helper.on_answer = kill
    clean(expected)
    helper.clean(log, is_large=True)
    assert killed
    assert files_of(log) == files_of(expected)


def test_more_keys_than_the_map_has_room_for_are_left_to_the_next_clean(
    tmp_path: Path, helper: CleanerProcess
) -> None:
    logs = [log_with(tmp_path / name, ordinary) for name in ("t-0", "u-0")]
    map_bytes = 24 * 300
    alone = CleanerProcess()
    alone.serves_clients = True
    try:
        alone.clean(logs[0], is_large=True, map_bytes=map_bytes)
    finally:
        alone.lanes.stop()
    helper.clean(logs[1], is_large=True, map_bytes=map_bytes)
    assert seen(logs[1]) == seen(logs[0])
    assert files_of(logs[1]) == files_of(logs[0])


def test_damage_is_reported_as_by_one_process(tmp_path: Path, helper: CleanerProcess) -> None:
    log = log_with(tmp_path / "t-0", ordinary)
    before = names_in(log, ".log")
    segment = log.segments[0]
    path = Path(segment.path(".log"))
    content = bytearray(path.read_bytes())
    content[segment.size // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedRecords):
        helper.clean(log, is_large=True)
    assert names_in(log, ".log") == before
    assert not names_in(log, ".cleaned")
    helper.clean(log_with(tmp_path / "u-0", ordinary), is_large=True)
    helper.finish()
    assert not helper.copies()
