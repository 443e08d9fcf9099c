"""Latency of a topic while another one is cleaned, against no clean.

    python bench/clean_latency.py --rounds 3

It fills topics with keyed values of 1 KiB. It measures produce to consume at 1,000 messages per
second, a few times in turn: alone, then while the broker cleans some of the topics, one after the
other. The medians count. If the cleans of a round end before its measurement, that is an error.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path
from random import Random
from statistics import median

from confluent_kafka import Producer

from harness.problem import BenchError
from ottla.testing import Cluster
from remote_tier import alter, await_true, latency, target_of

PARTITIONS = 6
VALUE_BYTES = 1024
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
SETTINGS: dict[str, str | int] = {"log.cleaner.backoff.ms": 100, "log.initial.task.delay.ms": 0}


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1200, help="the size of a topic")
    parser.add_argument("--topics", type=int, default=3, help="how many are cleaned in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    return parser.parse_args()


def main() -> int:
    """Measure, and print the figures as JSON."""
    options = arguments()
    directory = Path(tempfile.mkdtemp(prefix="ottla-clean-"))
    try:
        with Cluster(processes=True, data_dir=directory, properties=SETTINGS) as cluster:
            print(json.dumps(measure(options, cluster, directory), indent=1))
    except BenchError as error:
        print(f"clean_latency: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


def measure(options: argparse.Namespace, cluster: Cluster, directory: Path) -> dict[str, float]:
    """Return the 99th percentiles, without a clean and beside one."""
    target = target_of(cluster)
    cluster.create_topic("fresh")
    rounds = [
        [f"compacted-{number}-{topic}" for topic in range(options.topics)]
        for number in range(options.rounds)
    ]
    for topic in chain.from_iterable(rounds):
        cluster.create_topic(topic, PARTITIONS, configs={"segment.bytes": str(64 << 20)})
        fill(cluster, topic, options.megabytes * 1_000_000)
    os.sync()
    alone, beside = [], []
    for topics in rounds:
        alone.append(latency(target, options.seconds))
        for topic in topics:
            alter(cluster, topic, COMPACTED)
        await_true(lambda: is_cleaning(directory))
        beside.append(latency(target, options.seconds))
        if not is_cleaning(directory):
            raise BenchError("the cleans have ended too early: give them more --topics")
        await_true(lambda: not is_cleaning(directory))
    print(f"alone: {alone} ms, beside a clean: {beside} ms", file=sys.stderr)
    return {
        "p99_ms": median(alone),
        "p99_beside_a_clean_ms": median(beside),
        "ratio": round(median(beside) / median(alone), 2),
    }


def fill(cluster: Cluster, topic: str, size: int) -> None:
    """Write values with random keys, and one more to each partition in a new segment."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 20, "acks": 1}
    )
    chance = Random(1)
    values = [chance.randbytes(VALUE_BYTES) for _ in range(64)]
    for number in range(size // VALUE_BYTES):
        while True:
            try:
                producer.produce(
                    topic,
                    values[number & 63],
                    key=b"key-%09d" % chance.randrange(200_000),
                    partition=number // 1000 % PARTITIONS,
                )
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise BenchError("the topic cannot be filled")


def is_cleaning(directory: Path) -> bool:
    """Return True while a partition has unfinished files of a clean, or soon will."""
    began = time.monotonic()
    while time.monotonic() < began + 1:
        if any(directory.glob("**/compacted-*/*.cleaned")):
            return True
        time.sleep(0.01)
    return False


if __name__ == "__main__":
    sys.exit(main())
