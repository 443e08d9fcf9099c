"""Many partitions and segments: descriptors, memory and start-up stay bounded."""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ottla.config.topic import LogConfig
from ottla.log.log import Log
from ottla.memory_files import MemoryFiles
from ottla.model.steps import run_to_end
from ottla.testing.faulty_files import FaultyFiles
from tests.support.log import append_all, batch_of, new_log, new_resources, reopen
from tests.support.request_cost import count_calls

ROOT = Path(__file__).parents[3]
SIZE = len(batch_of(1))

TWENTY_THOUSAND_SEGMENTS = """
import os, resource, sys
sys.path.insert(0, sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
from tests.support.log import *
from ottla.testing.fakes import FakeClock, FakeRandom, QueuedBackground
from ottla.log.store.log_store import LogStore
from ottla.server.os_files import OsFiles

root, partitions, segments = sys.argv[1], 1000, 20
files = [build_batch([(b"k", b"v", NOW, ())], base_offset=base) for base in range(segments)]
for number in range(partitions):
    os.mkdir(f"{root}/t-{number}")
    for base, content in enumerate(files):
        for suffix, data in ((".log", content), (".index", b""), (".timeindex", b"")):
            with open(f"{root}/t-{number}/{base:020d}{suffix}", "wb") as file:
                file.write(data)
open(f"{root}/.kafka_cleanshutdown", "w").close()

config = LogConfig(segment_bytes=len(files[0]) + 20, segment_index_bytes=120)
store = LogStore(OsFiles(), [root], background=QueuedBackground(), clock=FakeClock(),
                 random=FakeRandom(), pool=FilePool(OsFiles(), 512))
store.load(lambda partition: config)
assert sum(len(log.segments) for log in store) == 20_000
for log in store:
    log.high_watermark = log.log_end_offset
    assert [batch.base_offset for batch in read_all(log)] == list(range(segments))
for log in store:
    append_all(log, batch_of(1, value=b""))
    assert len(log.segments) == segments + 1
    assert len(read_all(log, segments - 1)) == 2
assert not store.offline_dirs
descriptors = len(os.listdir("/proc/self/fd"))
assert descriptors < 600, descriptors
print("ok")
"""


@pytest.mark.slow
def test_20_000_segments_under_a_limit_of_1024_descriptors() -> None:
    # 60,000 files: in memory where that is possible, a disk may take a minute over them.
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as root:
        arguments = [sys.executable, "-c", TWENTY_THOUSAND_SEGMENTS, root, str(ROOT)]
        result = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert result.stdout == "ok\n", result.stderr


def bytes_per_log(make: list[Log], count: int) -> float:
    """Measure the memory of logs, without the files they write."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.take_snapshot()
        files = FaultyFiles(MemoryFiles())
        resources = new_resources(files)
        config = LogConfig()
        for number in range(count):
            log = new_log(config, resources, f"/data/t-{number}")
            append_all(log, batch_of(1, producer_id=7))
            log.close()
        reopened = [reopen_in(resources, f"/data/t-{number}", config) for number in range(count)]
        make.extend(reopened)
        del log
        gc.collect()
        after = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    ours = [
        statistic
        for statistic in after.compare_to(before, "filename")
        if "/ottla/log/" in statistic.traceback[0].filename
    ]
    return sum(statistic.size_diff for statistic in ours) / count


def reopen_in(resources: object, directory: str, config: LogConfig) -> Log:
    from ottla.log.resources import Resources
    from ottla.log.startup.open_log import Checkpoint, open_log
    from tests.support.log import PARTITION

    assert isinstance(resources, Resources)
    checkpoint = Checkpoint(True, 1, 0, 1)
    return open_log(resources, directory, PARTITION, config, checkpoint=checkpoint, notes=[])


def test_an_idle_partition_takes_a_few_kilobytes() -> None:
    logs: list[Log] = []
    used = bytes_per_log(logs, 100)
    assert len(logs) == 100
    assert used < 8 * 1024, f"{used:.0f} bytes a log"


def test_a_busy_partition_becomes_small_again() -> None:
    log = new_log(LogConfig(segment_bytes=100 * SIZE))
    append_all(log, *(batch_of(1) for _ in range(1000)))
    for segment in log:
        assert segment.offset_index.lookup(0)
    run_to_end(log.release_idle_memory())
    run_to_end(log.release_idle_memory())
    assert len(log.recent.offsets) == 0
    assert all(s._offset_index is None for s in log if not s.is_active)
    assert len(log.resources.pool) <= 64


def test_no_step_is_for_all_segments_of_a_log() -> None:
    log = new_log(LogConfig(segment_bytes=SIZE))
    append_all(log, *(batch_of(1) for _ in range(3000)))
    run_to_end(log.release_idle_memory())
    calls: list[int] = []
    steps = log.release_idle_memory()
    while not calls or log.segments[2998].has_indexes:
        calls.append(count_calls(lambda: next(steps, None)))
    assert max(calls) < 15_000
    assert not any(segment.has_indexes for segment in log if not segment.is_active)
    assert count_calls(log.abandon) < 30_000


def test_start_up_does_not_depend_on_the_number_of_batches() -> None:
    reads = []
    for count in (100, 2000):
        files = FaultyFiles(MemoryFiles())
        log = new_log(LogConfig(segment_bytes=50 * SIZE), new_resources(files))
        append_all(log, *(batch_of(1) for _ in range(count)))
        log.close()
        files.bytes_read = 0
        files.opened.clear()
        reopen(log, is_clean=True)
        reads.append((len(files.opened), files.bytes_read))
    assert reads[0] == reads[1]
