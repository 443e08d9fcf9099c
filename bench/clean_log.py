"""How fast a log is cleaned: records and megabytes a second.

    python bench/clean_log.py --value-bytes 1024 --codec lz4 --megabytes 256 --keys 100000

It writes a log of records with random keys, then cleans it as a broker does, with a real helper
process, which uses numba if it is installed. A first, small clean warms up the helper. With
--keep DIRECTORY the log is left there, uncleaned, for another program to clean.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

from ottla.config.topic import LogConfig
from ottla.log.cleaner import cleaning_task
from ottla.log.cleaner.clean_run import CleanRun, CleanSettings, CleanWorld
from ottla.log.cleaner.cleanable import cleanable
from ottla.log.cleaner.io_throttle import IoThrottle
from ottla.log.file_pool import FilePool
from ottla.log.log import Log
from ottla.log.resources import Resources
from ottla.log.startup.open_log import create_log
from ottla.model.ids import TopicPartition
from ottla.model.steps import Wait
from ottla.records.compression import CODECS
from ottla.records.record import build_batch
from ottla.server.helper_lanes import HelperLanes
from ottla.server.os_files import OsFiles
from ottla.server.system import SystemClock, SystemRandom
from ottla.testing.fakes import InlineBackground

SEGMENT_BYTES = 128 * 1024 * 1024
WARM_UP_MB = 40


def write_log(directory: Path, arguments: argparse.Namespace, megabytes: int) -> Log:
    """Return a log with records of random keys, and a new active segment."""
    files = OsFiles()
    resources = Resources(files, FilePool(files), InlineBackground(), SystemClock(), SystemRandom())
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=SEGMENT_BYTES)
    log = create_log(resources, str(directory), TopicPartition("t", 0), bytes(range(16)), config)
    chance, now_ms = Random(1), int(time.time() * 1000)
    per_batch = max(16384 // (arguments.value_bytes + 20), 1)
    values = [chance.randbytes(arguments.value_bytes // 2).hex().encode() for _ in range(64)]
    while log.size < megabytes * 1_000_000:
        batch = build_batch(
            [
                (b"key-%09d" % chance.randrange(arguments.keys), chance.choice(values), now_ms, ())
                for _ in range(per_batch)
            ],
            codec=CODECS[arguments.codec],
            base_offset=log.log_end_offset,
            leader_epoch=0,
        )
        log.append_as_follower(batch, memoryview(batch), 0, len(batch), now_ms)
        log.write_queued()
    log.high_watermark = log.log_end_offset
    log.roll(now_ms)
    return log


def clean(log: Log, helpers: HelperLanes, woken: threading.Semaphore, chunk: int) -> CleanRun:
    """Clean a log with a helper process, and wait for it."""
    world = CleanWorld(
        lambda message, done: helpers.submit(cleaning_task.TASK, message, done, "cleaner-0"),
        lambda delay_ms, action: action(),
        lambda: True,
        IoThrottle(1e300),
    )
    plan = cleanable(log, int(time.time() * 1000))
    run = CleanRun("bench", plan, CleanSettings(128 << 20, 0.9, chunk), world)
    steps = run.steps()
    try:
        while True:
            step = next(steps)
            while isinstance(step, Wait) and not step.is_over:
                woken.acquire()
                helpers.deliver()
    except StopIteration:
        return run


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Write a log and clean it; return what that took."""
    woken = threading.Semaphore(0)
    helpers = HelperLanes(woken.release)
    parent = Path(tempfile.mkdtemp(prefix="ottla-clean-"))
    try:
        warm_up = write_log(parent / "w-0", arguments, WARM_UP_MB)
        clean(warm_up, helpers, woken, arguments.chunk)
        log = write_log(parent / "t-0", arguments, arguments.megabytes)
        stats = clean(log, helpers, woken, arguments.chunk).stats
        return {
            "seconds": round(stats.seconds, 2),
            "map seconds": round((stats.mapped_ms - stats.started_ms) / 1000, 2),
            "records/s": int(stats.records_read / stats.seconds),
            "MB/s": round(stats.bytes_read / stats.seconds / 1e6, 1),
            "keys": stats.keys,
            "kept": round(stats.records_kept / stats.records_read, 3),
            "helper MiB": _memory(helpers),
        }
    finally:
        helpers.stop()
        shutil.rmtree(parent)


def _memory(helpers: HelperLanes) -> int:
    import psutil

    return max(int(psutil.Process(pid).memory_info().rss) >> 20 for pid in helpers.pids.values())


def main() -> None:
    """Measure what the arguments say, or write a log for another program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--value-bytes", type=int, default=1024)
    parser.add_argument("--codec", choices=CODECS, default="none")
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--chunk", type=int, default=512 * 1024)
    parser.add_argument("--keep", default=None)
    arguments = parser.parse_args()
    if arguments.keep is not None:
        write_log(Path(arguments.keep), arguments, arguments.megabytes).close()
    else:
        print(json.dumps(measure(arguments)))


if __name__ == "__main__":
    main()
