"""A partition this broker leads, and those who wait for its next records.

Invariants: `high_watermark` moves only after the bytes below it are written; whoever
watches a partition hears of every such move, and of the partition's end.
"""

from __future__ import annotations

from collections.abc import Callable
from errno import EIO
from typing import Protocol

from ottla.log.log import Log
from ottla.model.errors import ApiError, ErrorCode


class Watcher(Protocol):
    """Somebody who wants to know when a partition has something new."""

    def partition_changed(self) -> None: ...


class Partition:
    """One replica, leader of its partition.

    `log` is None while its directory is offline. `unsettled` holds what the produce
    handler needs to take back replies when the group commit fails.
    """

    __slots__ = (
        "index",
        "leader_epoch",
        "log",
        "on_commit",
        "removed",
        "replica_count",
        "topic",
        "unsettled",
        "watchers",
    )

    def __init__(
        self,
        topic: Topic,
        index: int,
        leader_epoch: int,
        log: Log | None,
        replica_count: int = 1,
    ) -> None:
        self.topic = topic
        self.index = index
        self.leader_epoch = leader_epoch
        self.log = log
        self.replica_count = replica_count
        self.removed = False
        self.watchers: dict[Watcher, None] = {}
        self.unsettled: list[tuple[object, bytes]] = []
        self.on_commit: list[Callable[[ErrorCode], None]] = []
        """Who appended for the broker itself, and is told once what became of it."""

    def online_log(self) -> Log:
        """The log, or KAFKA_STORAGE_ERROR while its directory is offline."""
        if self.log is None:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the log directory of {self.topic.name}-{self.index} is offline",
            )
        return self.log

    def commit(self) -> None:
        """Write what was appended and let it be read; OSError leaves all as it was."""
        log = self.log
        if log is None:  # its directory was lost since the append
            raise OSError(EIO, "the log directory is offline")
        log.write_queued()
        log.high_watermark = log.log_end_offset  # this replica is the whole ISR
        if self.watchers:
            self.notify()

    def notify(self) -> None:
        """Tell every watcher to look again; watchers may leave while being told."""
        for watcher in tuple(self.watchers):
            watcher.partition_changed()

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Fence a client whose knowledge of the leader is older or newer than ours."""
        if current_leader_epoch in (-1, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise ApiError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"leader epoch {current_leader_epoch} is older than {self.leader_epoch}",
            )
        raise ApiError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"leader epoch {current_leader_epoch} is newer than {self.leader_epoch}",
        )


class Topic:
    """A topic with the partitions hosted here, by index."""

    __slots__ = ("key", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.key = name.encode()
        self.topic_id = topic_id
        self.partitions: dict[int, Partition] = {}
