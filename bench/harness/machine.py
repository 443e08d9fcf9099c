"""A description of the machine and of the versions."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime

import confluent_kafka
import psutil

from harness.systems import System

BUSY_PERCENT = 10.0


def describe(systems: Sequence[System[object]]) -> dict[str, str]:
    """Return the facts that a reader needs to judge the figures."""
    memory_gib = psutil.virtual_memory().total / (1 << 30)
    found = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {memory_gib:.0f} GiB of memory, "
        f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        "librdkafka": confluent_kafka.libversion()[0],
    }
    for system in systems:
        found[system.name] = system.version
    if any(system.name == "Kafka" for system in systems):
        found["Java"] = _java_version()
    if (commit := _commit()) is not None:
        found["commit"] = commit
    return found


def others_at_work() -> list[str]:
    """Return a warning if other programs use the processors, else an empty text."""
    busy = psutil.cpu_percent(interval=1.0)
    if busy < BUSY_PERCENT:
        return []
    return [f"other programs used {busy:.0f} % of the processors before the run: expect noise"]


def _java_version() -> str:
    done = subprocess.run(
        ["java", "-version"], capture_output=True, text=True, timeout=30, check=False
    )
    quoted = done.stderr.split('"')
    return quoted[1] if len(quoted) > 1 else "unknown"


def _commit() -> str | None:
    if shutil.which("git") is None:
        return None
    here = os.path.dirname(__file__)
    done = subprocess.run(
        ["git", "-C", here, "rev-parse", "--short", "HEAD"],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    return done.stdout.strip() or None
