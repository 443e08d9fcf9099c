"""Workloads that start brokers themselves: time to the first write, memory, restart with much data.

Each has one directory per system for all rounds. In `prepare` the system itself fills the directory
and stops cleanly, so that every measured start is a restart.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Protocol, TypeVar

from harness.broker import START_TIMEOUT_S, Broker
from harness.probe import await_acknowledgement
from harness.problem import BenchError
from harness.scale import Scale
from harness.topics import KEPT, create_topic, delete_topic, rolling
from harness.works import Figures, consume, fill

SPARE_DISK_BYTES = 4 << 30


B_contra = TypeVar("B_contra", contravariant=True)


class FreshWork(Protocol[B_contra]):
    """A workload that starts its own brokers or clusters."""

    name: str
    rounds: int

    def prepare(self, broker: B_contra, /) -> None:
        """Fill the broker's directory and stop the broker."""

    def measure(self, broker: B_contra, /) -> Figures:
        """Start the broker, measure, and stop it cleanly."""


def timed_start(broker: Broker, topic: str) -> float:
    """Return the seconds from the start of the process to the first acknowledged write."""
    began = time.perf_counter()
    broker.spawn()
    try:
        await_acknowledgement(broker.port, topic, START_TIMEOUT_S, lambda: broker.running)
    except BenchError as error:
        tail = broker.log_tail()
        broker.kill()
        raise BenchError(f"{broker.system}: {error}\n{tail}") from error
    return time.perf_counter() - began


class StartAndMemory:
    """A start, the memory of the idle broker, and its memory after 1 GB of data."""

    name = "start"

    def __init__(self, scale: Scale) -> None:
        self._scale = scale
        self.rounds = scale.rounds
        self._rounds = 0

    def prepare(self, broker: Broker) -> None:
        """Create a topic and write to it."""
        broker.start()
        create_topic(broker.port, "first", 1, rolling())
        broker.stop()

    def measure(self, broker: Broker) -> Figures:
        """Return the seconds to the first write, and the megabytes when idle and used."""
        start_s = timed_start(broker, "first")
        time.sleep(self._scale.memory_settle_s)
        figures = {"start": start_s, "memory-idle": broker.target.resident_mb()}
        if self._scale.memory_bytes:
            self._send_through(broker)
            figures["memory-used"] = broker.target.resident_mb()
        broker.stop()
        return figures

    def _send_through(self, broker: Broker) -> None:
        self._rounds += 1
        topic = f"through-{self._rounds}"
        create_topic(broker.port, topic, 1, KEPT)
        filled = fill(broker.target, topic, self._scale.memory_bytes, 1024)
        consume(broker.target, topic, filled, 1)
        delete_topic(broker.port, topic)


class Restart:
    """A start with a partition of many segments, after a clean stop."""

    name = "restart"

    def __init__(self, scale: Scale) -> None:
        self._scale = scale
        self.rounds = scale.rounds
        self._total_bytes = scale.restart_segments * scale.restart_segment_bytes

    def prepare(self, broker: Broker) -> None:
        """Create the topic `big` with the requested number of segments."""
        self._check_disk(broker.directory)
        broker.start()
        settings = {**KEPT, "segment.bytes": str(self._scale.restart_segment_bytes)}
        create_topic(broker.port, "big", 1, settings)
        fill(broker.target, "big", self._total_bytes, 10_240)
        broker.stop()
        self._check_segments(broker.directory)
        os.sync()  # otherwise this data would be written to disk while the other system starts

    def measure(self, broker: Broker) -> Figures:
        """Return the seconds to the first write to that partition."""
        start_s = timed_start(broker, "big")
        broker.stop()
        return {"restart": start_s}

    def _check_disk(self, place: Path) -> None:
        free, needed = shutil.disk_usage(place).free, self._total_bytes + SPARE_DISK_BYTES
        if free < needed:
            raise BenchError(f"{needed / 1e9:.0f} GB of disk are needed, {free / 1e9:.0f} are free")

    def _check_segments(self, directory: Path) -> None:
        found, wanted = len(list(directory.glob("data/big-0/*.log"))), self._scale.restart_segments
        if found < wanted * 0.95:
            raise BenchError(f"{found} segments were made where {wanted} were meant")


def fresh_works(scale: Scale) -> list[FreshWork[Broker]]:
    """Return all workloads that start brokers themselves."""
    return [StartAndMemory(scale), Restart(scale)]
