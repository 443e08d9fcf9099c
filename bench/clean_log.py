"""How fast a log is cleaned, by Ottla and by Apache Kafka.

    python bench/clean_log.py --value-bytes 1024 --codec lz4 --megabytes 256 --keys 100000 --kafka

It writes a log of records with random keys. Ottla cleans copies of it as a broker does, with a
background thread and a helper process, which uses numpy if it is installed. With --kafka, Kafka's
cleaner cleans other copies with one thread. Each does so --rounds times. The fastest round counts:
the first one warms up. `cpu` is the processor time of the helper process and its copy, and of
Kafka's cleaner thread; `cpu of the broker` is that of this process. `private` is the memory of the
helper process that it shares with nobody, after a clean.

With --keep DIRECTORY the log is left there, uncleaned.
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

import psutil

from ottla.config.topic import LogConfig
from ottla.log.cleaner import cleaning_task
from ottla.log.cleaner.clean_run import CleanRun, CleanSettings, CleanWorld
from ottla.log.cleaner.cleanable import cleanable
from ottla.log.cleaner.io_throttle import IoThrottle
from ottla.log.file_pool import FilePool
from ottla.log.log import Log
from ottla.log.resources import Resources
from ottla.log.startup.open_log import Checkpoint, create_log, open_log
from ottla.model.ids import TopicPartition
from ottla.model.steps import Wait
from ottla.ports import Background
from ottla.records.compression import CODECS
from ottla.records.record import build_batch
from ottla.server.background import BackgroundThread
from ottla.server.clock_and_random import SystemClock, SystemRandom
from ottla.server.helper_lanes import HelperLanes
from ottla.server.os_files import OsFiles
from ottla.testing.fakes import InlineBackground

SEGMENT_BYTES = 128 * 1024 * 1024
PARTITION = TopicPartition("t", 0)
CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=SEGMENT_BYTES)
MAP_BYTES = 128 << 20


def resources_with(background: Background) -> Resources:
    """Return what a log needs of its surroundings."""
    files = OsFiles()
    return Resources(files, FilePool(files), background, SystemClock(), SystemRandom())


def write_log(directory: Path, arguments: argparse.Namespace) -> None:
    """Write a log with records of random keys, and a new active segment."""
    resources = resources_with(InlineBackground())
    log = create_log(resources, str(directory), PARTITION, bytes(range(16)), CONFIG)
    chance, now_ms = Random(1), int(time.time() * 1000)
    per_batch = max(16384 // (arguments.value_bytes + 20), 1)
    values = [chance.randbytes(arguments.value_bytes // 2).hex().encode() for _ in range(64)]
    while log.size < arguments.megabytes * 1_000_000:
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
    log.close()


class Cleaner:
    """What a broker has for its cleaner: a background thread and a helper process."""

    def __init__(self, chunk_bytes: int) -> None:
        self._woken = threading.Semaphore(0)
        self._background = BackgroundThread(self._woken.release)
        self._helpers = HelperLanes(self._woken.release)
        self._chunk_bytes = chunk_bytes

    def open(self, directory: Path) -> Log:
        """Open a log that was closed."""
        checkpoint = Checkpoint(True, 0, 0, 2**62)
        resources = resources_with(self._background)
        return open_log(
            resources, str(directory), PARTITION, CONFIG, checkpoint=checkpoint, notes=[]
        )

    def clean(self, log: Log) -> CleanRun:
        """Clean a log, and wait for it."""
        world = CleanWorld(
            lambda message, done: self._helpers.submit(cleaning_task.TASK, message, done, "c"),
            lambda delay_ms, action: action(),
            lambda: True,
            lambda: False,
            IoThrottle(1e300),
        )
        plan = cleanable(log, int(time.time() * 1000))
        settings = CleanSettings(MAP_BYTES, 0.9, self._chunk_bytes)
        run = CleanRun("bench", plan, settings, world)
        steps = run.steps()
        try:
            while True:
                step = next(steps)
                while isinstance(step, Wait) and not step.is_over:
                    self._woken.acquire()
                    self._helpers.deliver()
                    self._background.deliver()
        except StopIteration:
            return run

    @property
    def helper(self) -> psutil.Process | None:
        """The helper process, if there is one."""
        pids = list(self._helpers.pids.values())
        return psutil.Process(pids[0]) if pids else None

    def stop(self) -> None:
        """End the helper process and the thread."""
        self._helpers.stop()
        self._background.stop()


def measure(source: Path, parent: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Clean copies of a log; return what the fastest clean took."""
    cleaner = Cleaner(arguments.chunk)
    rounds = []
    try:
        for number in range(arguments.rounds):
            shutil.copytree(source, parent / f"o{number}")
            log = cleaner.open(parent / f"o{number}")
            before = _cpu_seconds(cleaner.helper), time.process_time()
            stats = cleaner.clean(log).stats
            rounds.append(
                {
                    "seconds": round(stats.seconds, 2),
                    "map seconds": round((stats.mapped_ms - stats.started_ms) / 1000, 2),
                    "cpu": round(_cpu_seconds(cleaner.helper) - before[0], 2),
                    "cpu of the broker": round(time.process_time() - before[1], 2),
                    "records/s": int(stats.records_read / stats.seconds),
                    "MB/s": round(stats.bytes_read / stats.seconds / 1e6, 1),
                    "kept": round(stats.records_kept / stats.records_read, 3),
                    "map MiB": round(stats.keys * 24 / 2**20, 1),
                    "private MiB": _memory(cleaner.helper),
                }
            )
            shutil.rmtree(parent / f"o{number}")
        return min(rounds, key=lambda each: float(each["seconds"]))
    finally:
        cleaner.stop()


def measure_kafka(source: Path, parent: Path, rounds: int) -> dict[str, Any]:
    """Let Kafka clean copies of a log; return what the fastest clean took."""
    from harness.kafka_cleaner import clean_with_kafka

    found = clean_with_kafka(parent / "kafka", source, rounds)
    return {
        "seconds": round(min(each.seconds for each in found), 2),
        "cpu": round(min(each.cpu_seconds for each in found), 2),
    }


def _cpu_seconds(process: psutil.Process | None) -> float:
    if process is None:
        return 0.0
    while process.children():  # its copy ends right after the clean
        time.sleep(0.001)
    return float(sum(process.cpu_times()[:4]))


def _memory(process: psutil.Process | None) -> int:
    """Return the memory that no other process shares."""
    return 0 if process is None else int(process.memory_full_info().uss) >> 20


def main() -> None:
    """Measure what the arguments say, or write a log for another program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--value-bytes", type=int, default=1024)
    parser.add_argument("--codec", choices=CODECS, default="none")
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--chunk", type=int, default=4 * 1024 * 1024)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--kafka", action="store_true")
    parser.add_argument("--keep", default=None)
    arguments = parser.parse_args()
    if arguments.keep is not None:
        write_log(Path(arguments.keep), arguments)
        return
    parent = Path(tempfile.mkdtemp(prefix="ottla-clean-"))
    try:
        write_log(parent / "source", arguments)
        result = {"Ottla": measure(parent / "source", parent, arguments)}
        if arguments.kafka:
            result["Kafka"] = measure_kafka(parent / "source", parent, arguments.rounds)
        print(json.dumps(result))
    finally:
        shutil.rmtree(parent)


if __name__ == "__main__":
    main()
