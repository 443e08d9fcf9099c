"""How fast the remote part of a compacted topic is cleaned, and how much memory that takes.

    python bench/remote_clean.py --megabytes 400

It fills a compacted topic whose segments go to a directory, and waits until they are copied. Then
it fills the topic again with the same keys and watches the broker rewrite its remote segments. The
memory is the most that the broker and its helper processes have for themselves meanwhile, and what
the broker has before.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import psutil

from clean_latency import fill
from harness.problem import BenchError
from ottla.testing import Cluster
from remote_tier import LIMIT_S, target_of

TOPIC = "compacted-0"
SETTINGS: dict[str, str | int] = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": 100,
    "log.cleaner.backoff.ms": 100,
    "log.retention.check.interval.ms": 500,
    "log.initial.task.delay.ms": 0,
    "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
}
CONFIGS = {
    "cleanup.policy": "compact",
    "remote.storage.enable": "true",
    "local.retention.bytes": "1",
    "segment.bytes": str(32 << 20),
    "min.cleanable.dirty.ratio": "0.3",
    "file.delete.delay.ms": "0",
}


def main() -> int:
    """Measure, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=400, help="how much to write, twice")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="ottla-remote-clean-"))
    settings = {**SETTINGS, "remote.log.storage.url": f"file:{directory}/cold"}
    try:
        with Cluster(processes=True, data_dir=directory / "data", properties=settings) as cluster:
            print(json.dumps(measure(options, cluster, directory), indent=1))
    except BenchError as error:
        print(f"remote_clean: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


def measure(options: argparse.Namespace, cluster: Cluster, directory: Path) -> dict[str, float]:
    """Return the figures."""
    broker = psutil.Process(target_of(cluster).pid)
    cluster.create_topic(TOPIC, 6, configs=CONFIGS)
    fill(cluster, TOPIC, options.megabytes * 1_000_000)
    Watch(broker, directory).until_quiet()
    fill(cluster, TOPIC, options.megabytes * 1_000_000)
    watch = Watch(broker, directory)
    watch.until_quiet()
    return watch.figures()


class Watch:
    """Looks at the broker, its helper processes and the store, again and again."""

    def __init__(self, broker: psutil.Process, directory: Path) -> None:
        self._broker = broker
        self._cold = directory / "cold"
        self._known = self._logs()
        self._began = self._ended = time.monotonic()
        self._most = {"broker": 0, "helper": 0}
        self._before = broker.memory_full_info().uss
        self._written = 0

    def _logs(self) -> dict[str, int]:
        found = {}
        for path in self._cold.rglob("*.log"):
            try:
                found[str(path)] = path.stat().st_size
            except FileNotFoundError:
                continue
        return found

    def until_quiet(self) -> None:
        """Watch until the store has not changed for some seconds."""
        deadline, changed = time.monotonic() + LIMIT_S, time.monotonic()
        while time.monotonic() - changed < 8:
            if time.monotonic() > deadline:
                raise BenchError("the store does not come to rest")
            self._look_at_memory()
            logs = self._logs()
            if logs.keys() != self._known.keys():
                self._written += sum(logs[path] for path in logs.keys() - self._known.keys())
                self._known, self._ended = logs, time.monotonic()
                changed = self._ended
            time.sleep(0.02)

    def _look_at_memory(self) -> None:
        for name, processes in (
            ("broker", [self._broker]),
            ("helper", self._broker.children(recursive=True)),
        ):
            for process in processes:
                try:
                    size = process.memory_full_info().uss
                except psutil.Error:
                    continue
                self._most[name] = max(self._most[name], size)

    def figures(self) -> dict[str, float]:
        """Return what was seen."""
        seconds = self._ended - self._began
        return {
            "seconds": round(seconds, 2),
            "stored_mb": round(self._written / 1e6, 1),
            "remote_mb": round(sum(self._known.values()) / 1e6, 1),
            "broker_private_mib_before": self._before >> 20,
            "broker_private_mib": self._most["broker"] >> 20,
            "helper_private_mib": self._most["helper"] >> 20,
        }


if __name__ == "__main__":
    sys.exit(main())
