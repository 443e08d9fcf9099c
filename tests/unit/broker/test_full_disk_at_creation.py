"""A topic made while the disk is full gets its logs once there is room."""

from __future__ import annotations

from collections.abc import Callable
from errno import ENOSPC
from typing import TypeVar

from ottla.broker.auto_topic_creation import auto_create
from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.config.listeners import Endpoint
from ottla.memory_files import MemoryFile, MemoryFiles
from ottla.ports import Ports

T = TypeVar("T")


class FullFiles(MemoryFiles):
    """A disk that makes no new file of a topic while it is full."""

    is_full = False

    def open(self, path: str, *, create: bool = False, writable: bool = False) -> MemoryFile:
        if self.is_full and create and "/t-" in path and not self.exists(path):
            raise OSError(ENOSPC, "no space left", path)
        return super().open(path, create=create, writable=writable)


class Clock:
    now_ms = 1_000_000.0

    def wall_ms(self) -> int:
        return int(self.now_ms)

    def monotonic_ms(self) -> float:
        return self.now_ms


class Random:
    def __init__(self) -> None:
        self._next = 0

    def uuid(self) -> bytes:
        self._next += 1
        return self._next.to_bytes(16)

    def below(self, limit: int) -> int:
        return 0


class AtOnce:
    def submit(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        done(work())


def test_logs_that_found_no_room_are_made_when_there_is_some() -> None:
    files, clock, said = FullFiles(), Clock(), []
    ports = Ports(files, clock, Random(), AtOnce(), said.append)
    node = Node(
        BrokerConfig({"log.dirs": "/data", "num.partitions": "3"}),
        [Endpoint("PLAINTEXT", "127.0.0.1", 9092)],
        ports,
    )
    node.start()
    files.is_full = True
    auto_create(node, ["t"], lambda errors: None)
    node.settle()
    partitions = node.topics.by_key[b"t"].partitions
    assert [partition.log for partition in partitions.values()] == [None] * 3
    made = []
    node.hosted_logs.on_log_made.append(lambda partition: made.append(partition.index))

    def pass_seconds(seconds: int) -> None:
        for _ in range(seconds):
            clock.now_ms += 1000
            node.advance()

    pass_seconds(5)
    assert made == []
    assert len([message for message in said if "no log could be made" in message]) == 3
    files.is_full = False
    pass_seconds(2)
    assert made == [0, 1, 2]
    assert all(partition.log is not None for partition in partitions.values())
