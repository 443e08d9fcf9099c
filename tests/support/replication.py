"""Replicas of one partition with logs in memory, and somebody who waits for appends."""

from __future__ import annotations

from typing import Any

from ottla.config.topic import LogConfig
from ottla.log.log import Log
from ottla.metadata.image import PartitionImage
from ottla.model.errors import ApiError
from ottla.replication.partition import Partition, Topic
from ottla.replication.partition_follower import PartitionFollower
from ottla.replication.partition_leader import WRITTEN
from tests.support.log import NOW, TOPIC_ID, batch_of, new_log

BROKERS = (1, 2, 3)


def image(
    leader: int = 1,
    isr: tuple[int, ...] = BROKERS,
    *,
    leader_epoch: int = 0,
    replicas: tuple[int, ...] = BROKERS,
) -> PartitionImage:
    """Return the image of a partition with three replicas."""
    return PartitionImage(0, replicas, isr, leader, leader_epoch, leader_epoch)


class Replica:
    """A replica of the partition on one broker."""

    def __init__(
        self, broker_id: int, role: PartitionImage, *, config: LogConfig | None = None
    ) -> None:
        self.broker_id = broker_id
        self.partition = Partition(Topic("t", TOPIC_ID), 0)
        self.partition.log = new_log(config or LogConfig())
        self.take_role(role)

    def take_role(self, role: PartitionImage) -> None:
        self.partition.take_role(role, self.broker_id)

    @property
    def log(self) -> Log:
        return self.partition.online_log()

    @property
    def follower(self) -> PartitionFollower:
        assert self.partition.follower is not None
        return self.partition.follower

    def append(self, count: int = 1, *, acks: int = -1, value: bytes = b"v") -> Waiter:
        """Append a batch as leader, and wait for it as Produce does; it is not written yet."""
        leader, waiter = self.partition.as_leader(), Waiter()
        batch = batch_of(count, value=value)
        self.log.append_as_leader(
            batch, memoryview(batch), 0, len(batch), self.partition.leader_epoch, NOW
        )
        until = self.log.log_end_offset if acks < 0 else WRITTEN
        leader.unwritten.append((until, waiter, "place", 7))
        return waiter

    def write(self, count: int = 1, *, acks: int = -1, value: bytes = b"v") -> Waiter:
        """Append a batch as leader and write it."""
        waiter = self.append(count, acks=acks, value=value)
        self.partition.as_leader().write()
        return waiter

    def content(self) -> bytes:
        """Return all bytes of the log that are written."""
        return b"".join(
            segment.file.pread(segment.size, 0) for segment in self.log.segments if segment.size
        )


class Waiter:
    """Hears what became of an append."""

    def __init__(self) -> None:
        self.told: list[ApiError | None] = []
        self.waits = 0

    def accepted(
        self, place: Any, position: int, base_offset: int, append_time: int, log_start_offset: int
    ) -> None:
        raise AssertionError("no append here is delayed")

    def appended(self, place: Any, position: int, error: ApiError | None) -> None:
        assert (place, position) == ("place", 7)
        self.told.append(error)

    def wait_for_followers(self, place: Any, position: int) -> None:
        assert (place, position) == ("place", 7)
        self.waits += 1

    @property
    def codes(self) -> list[int]:
        """What it was told, as error codes."""
        return [0 if error is None else int(error.code) for error in self.told]


class Watcher:
    """Counts how often a partition has changed."""

    def __init__(self) -> None:
        self.changes = 0

    def partition_changed(self) -> None:
        self.changes += 1
