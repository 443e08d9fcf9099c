"""How fast the remote tier is, with a directory as store.

    python bench/remote_tier.py --megabytes 1100

It fills a topic, lets the broker copy it, and reads it from the local segments and then from the
tier, both times without pages of the files in memory. It also measures the latency of fresh
records while ten consumers read old ones at a steady rate, against none: first with the old records
on the local disk, then in the tier. The ten consumers run on this machine only when nothing else
wants the processor (SCHED_IDLE), as if they had machines of their own: what is measured is what the
broker does for them, not how they crowd out the client that measures.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from confluent_kafka import Consumer, TopicPartition

from harness.load import run_load
from harness.native import rdkafka_load
from harness.problem import BenchError
from harness.target import Target, target_at
from harness.works import consume, fill
from ottla.cli.sizes import size_text
from ottla.client.address import parse_addresses
from ottla.client.cluster import Client
from ottla.client.topics.topics import alter_topic
from ottla.server.object_stores.blocking_store import all_objects, open_blocking_store
from ottla.testing import Cluster
from ottla.tier_reader import open_topic

SEGMENT_BYTES = 256 * 1024 * 1024
RECORD_BYTES = 1024
READERS = 10
LIMIT_S = 300.0
RATE = 1000
WARM_S = 2.0


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1100, help="how much to write")
    parser.add_argument("--rounds", type=int, default=3, help="of latency")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each latency round")
    parser.add_argument("--reader-rate", type=float, default=5.0, help="MB/s of each old reader")
    parser.add_argument("--directory", help="where to work; default: the temporary directory")
    return parser.parse_args()


def main() -> int:
    """Measure, and print the figures as JSON."""
    options = arguments()
    directory = Path(tempfile.mkdtemp(prefix="ottla-tier-", dir=options.directory))
    try:
        print(json.dumps(measure(options, directory), indent=1))
    except BenchError as error:
        print(f"remote_tier: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


def measure(options: argparse.Namespace, directory: Path) -> dict[str, float]:
    """Return all figures."""
    settings: dict[str, str | int] = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.url": f"file:{directory}/cold",
        "remote.log.manager.task.interval.ms": 100,
        "log.retention.check.interval.ms": 500,
        "log.initial.task.delay.ms": 0,
        "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
    }
    figures: dict[str, float] = {}
    with Cluster(processes=True, data_dir=directory / "data", properties=settings) as cluster:
        target = target_of(cluster)
        cluster.create_topic(
            "old",
            configs={
                "remote.storage.enable": "true",
                "remote.log.copy.disable": "true",
                "segment.bytes": str(SEGMENT_BYTES),
                "file.delete.delay.ms": "0",
            },
        )
        total = fill(target, "old", options.megabytes * 1_000_000, RECORD_BYTES)
        forget_pages(directory)
        figures["consume_local_mb_per_s"] = consume(target, "old", total, 1)["mb_per_s"]
        cluster.create_topic("fresh")
        records = int(total / RECORD_BYTES)
        local_latencies = latencies(options, cluster, target, records)
        figures |= {f"local_{name}": value for name, value in local_latencies.items()}
        figures |= upload(cluster, directory)
        alter(cluster, "old", {"local.retention.bytes": "1"})
        await_true(lambda: len(list((directory / "data" / "old-0").glob("*.log"))) <= 2)
        forget_pages(directory)
        done = consume(target, "old", total, 1)
        figures["consume_tier_mb_per_s"] = done["mb_per_s"]
        figures["consume_tier_cpu_s_per_gb"] = done["cpu_s"] / (done["bytes"] / 1e9)
        local = figures["consume_local_mb_per_s"]
        figures["consume_tier_against_local"] = done["mb_per_s"] / local
        forget_pages(directory)
        figures |= read_without_broker(f"file:{directory}/cold")
        figures |= latencies(options, cluster, target, records)
        figures["broker_resident_mb"] = target.resident_mb()
    return {name: round(value, 3) for name, value in figures.items()}


def target_of(cluster: Cluster) -> Target:
    """Return the only broker of a cluster."""
    return target_at(int(cluster.bootstrap_servers.rpartition(":")[2]))


def upload(cluster: Cluster, directory: Path) -> dict[str, float]:
    """Let the broker copy all closed segments; return how fast it does."""
    closed = sorted((directory / "data" / "old-0").glob("*.log"))[:-1]
    expected = sum(path.stat().st_size for path in closed)
    store = open_blocking_store(f"file:{directory}/cold")
    began = time.monotonic()
    alter(cluster, "old", {"remote.log.copy.disable": "false"})

    def copied() -> bool:
        keys = [each.key for each in all_objects(store, "")]
        return sum(key.endswith(".manifest") for key in keys) == len(closed)

    await_true(copied)
    seconds = time.monotonic() - began
    print(f"{size_text(expected)} uploaded in {seconds:.2f} s", file=sys.stderr)
    return {"upload_mb_per_s": expected / 1e6 / seconds}


def read_without_broker(url: str) -> dict[str, float]:
    """Return how fast the library reads and checks all batches."""
    began, read = time.monotonic(), 0
    for batch in open_topic(url, "old").partition(0).batches():
        read += len(batch.data)
    return {"reader_mb_per_s": read / 1e6 / (time.monotonic() - began)}


def latencies(
    options: argparse.Namespace, cluster: Cluster, target: Target, records: int
) -> dict[str, float]:
    """Return the p99 of produce to consume, without old readers and with them."""
    alone, crowded = [], []
    for _ in range(options.rounds):
        alone.append(latency(target, options.seconds))
        with old_readers(cluster, records, options.reader_rate):
            crowded.append(latency(target, options.seconds))
    without, beside = median(alone), median(crowded)
    return {
        "fresh_p99_ms": without,
        "fresh_p99_with_old_readers_ms": beside,
        "fresh_p99_ratio": beside / without,
    }


def latency(target: Target, seconds: float) -> float:
    """Return the 99th percentile of one round, in milliseconds."""
    return run_load(
        rdkafka_load(),
        target,
        "latency",
        target.ports_text,
        "fresh",
        "1",
        RATE,
        100,
        WARM_S,
        seconds,
    )["p99_ms"]


@contextmanager
def old_readers(cluster: Cluster, records: int, rate_mb_per_s: float) -> Iterator[None]:
    """Have consumers read the old topic again and again, each from another offset."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(
        target=read_old, args=(cluster.bootstrap_servers, records, rate_mb_per_s), daemon=True
    )
    process.start()
    try:
        time.sleep(WARM_S)
        yield
    finally:
        process.kill()
        process.join()


def read_old(bootstrap_servers: str, records: int, rate_mb_per_s: float) -> None:
    """Read the old topic with ten consumers, until killed; all threads have the lowest priority."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    consumers = []
    for number in range(READERS):
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": f"old-{number}",
                "auto.offset.reset": "earliest",
                "queued.max.messages.kbytes": 2048,
            }
        )
        consumer.assign([TopicPartition("old", 0, number * records // READERS)])
        consumers.append(consumer)
    began, read = time.monotonic(), 0
    while True:
        for consumer in consumers:
            messages = consumer.consume(200, 0.02)
            read += sum(len(message.value() or b"") for message in messages)
        ahead_s = read / (rate_mb_per_s * 1e6 * READERS) - (time.monotonic() - began)
        if ahead_s > 0:
            time.sleep(ahead_s)


def alter(cluster: Cluster, topic: str, configs: dict[str, str]) -> None:
    """Change settings of a topic."""
    with Client(parse_addresses(cluster.bootstrap_servers)) as client:
        alter_topic(client, topic, set_configs=configs)


def forget_pages(directory: Path) -> None:
    """Write all files to disk and drop their pages from memory."""
    os.sync()
    for path in directory.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def await_true(check: Callable[[], bool]) -> None:
    """Wait for a condition; raise BenchError if it takes too long."""
    deadline = time.monotonic() + LIMIT_S
    while not check():
        if time.monotonic() > deadline:
            raise BenchError("the broker does not get ready")
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main())
