"""Kafka's log cleaner on given logs: how long it takes, by its own account.

The logs become partitions of a topic of a new broker, which cleans them one after the other with
one thread. The first ones warm up its compiler.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import NewTopic

from harness.problem import BenchError
from harness.systems import Kafka
from harness.topics import submit_topic

TOPIC = "t"
TIMEOUT_S = 300.0
_CLEANER_ON = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.threads": "1",
    "log.retention.bytes": "-1",
}
_LOGGED = "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.storage.internals.log=info"
_DONE = re.compile(
    r"cleaned log (\S+) .*?([0-9.,]+) MB of log processed in [0-9.,]+ seconds \(([0-9.,]+) MB/sec",
    re.DOTALL,
)
_THREAD = "kafka-log-clean"


class Cleaned(NamedTuple):
    """What a clean took."""

    seconds: float
    cpu_seconds: float


def clean_with_kafka(directory: Path, source: Path, copies: int) -> list[Cleaned]:
    """Clean copies of a partition's directory, and return what each took, in their order."""
    kafka = Kafka(None)
    broker = kafka.new_broker(directory, {"log.cleaner.enable": "false"})
    broker.start()
    try:
        settings = {"cleanup.policy": "compact", "segment.bytes": str(128 << 20)}
        submit_topic(broker.port, NewTopic(TOPIC, copies, 1, config=settings))
        _await_directories(directory / "data", copies)
    finally:
        broker.stop()
    for number in range(copies):
        _replace(directory / "data" / f"{TOPIC}-{number}", source)
    config = directory / "server.properties"
    lines = [line for line in config.read_text().splitlines() if "log.cleaner" not in line]
    more = [f"{name}={value}" for name, value in _CLEANER_ON.items()]
    config.write_text("\n".join([*lines, *more]) + "\n")
    os.environ["JAVA_TOOL_OPTIONS"] = _LOGGED
    try:
        broker.start()
        return _watch(broker.target.pid, directory / "broker.log", copies)
    finally:
        del os.environ["JAVA_TOOL_OPTIONS"]
        broker.stop()


def _await_directories(data: Path, copies: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while len(list(data.glob(f"{TOPIC}-*/partition.metadata"))) < copies:
        if time.monotonic() > deadline:
            raise BenchError("Kafka did not create the partitions")
        time.sleep(0.05)


def _replace(partition: Path, source: Path) -> None:
    """Put the segments of a log in place of those of an empty partition."""
    for path in partition.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for path in source.iterdir():
        if path.suffix in {".log", ".index", ".timeindex"}:
            shutil.copy(path, partition)


def _watch(pid: int, log: Path, copies: int) -> list[Cleaned]:
    found: list[Cleaned] = []
    cpu_before = 0.0
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        times = [
            float(each[1].replace(",", "")) / float(each[2].replace(",", ""))
            for each in _DONE.findall(log.read_text(errors="replace"))
            if each[0].startswith(f"{TOPIC}-")
        ]
        cpu = _cpu_seconds(pid)
        for seconds in times[len(found) :]:
            found.append(Cleaned(seconds, cpu - cpu_before))
            cpu_before = cpu
        if len(found) == copies:
            return found
        time.sleep(0.02)
    raise BenchError(f"Kafka cleaned {len(found)} of {copies} logs in {TIMEOUT_S:.0f} s")


def _cpu_seconds(pid: int) -> float:
    """Return the processor time of the cleaner's thread."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            if (task / "comm").read_text().startswith(_THREAD):
                fields = (task / "stat").read_text().rpartition(")")[2].split()
                total += int(fields[11]) + int(fields[12])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total / os.sysconf("SC_CLK_TCK")
