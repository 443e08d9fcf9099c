"""Moves of replicas between the log directories of this broker (AlterReplicaLogDirs, KIP-113).

Records are copied a few hundred kilobytes at a time between other work, and not faster than
replica.alter.log.dirs.io.max.bytes.per.second.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from ottla.log.store.log_move import LogMove
from ottla.log.store.log_store import parent_of
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TopicPartition
from ottla.replication.partition import Partition
from ottla.replication.throttle import RateLimit, rate_limit

if TYPE_CHECKING:
    from ottla.broker.node import Node

COPIED_AT_ONCE: Final = 256 * 1024
SMALLEST_COPY: Final = 4 * 1024
PAUSE_MS: Final = 0.1
WAIT_MS: Final = 20
MOST_PREFERRED: Final = 10_000
CHECKED_AT_ONCE: Final = 16
"""There may be thousands of moves, and a step comes every tenth of a millisecond."""


class LogMoves:
    """The moves that are under way."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.moves: dict[Partition, LogMove] = {}
        self._limit: RateLimit | None = None
        self._is_scheduled = False

    def move(self, partition: Partition, directory: str) -> None:
        """Begin to move a replica, or cancel its move if it is in that directory already.

        Raise LOG_DIR_NOT_FOUND if this broker has no such directory, KAFKA_STORAGE_ERROR if it or
        the log is offline, INVALID_REQUEST if the topic is tiered.
        """
        node = self._node
        self.check_known(directory)
        log = partition.online_log()
        self._check_online(directory)
        present = self.moves.get(partition)
        if present is not None:
            if present.target == directory:
                return
            self._cancel(partition)
        if parent_of(log) == directory:
            return
        if log.config.remote_storage_enable:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{partition.name} is tiered: its replicas cannot be moved between log directories",
            )
        try:
            self.moves[partition] = LogMove(node.store, log, directory)
        except OSError as error:
            node.store.directory_failed(directory, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._schedule(0)

    def prefer(self, name: TopicPartition, directory: str) -> None:
        """Remember where to create a replica that is still to come to this broker.

        A client says so before it assigns the replica. Errors as for `move`.
        """
        self.check_known(directory)
        self._check_online(directory)
        preferred = self._node.store.preferred
        if len(preferred) >= MOST_PREFERRED:
            del preferred[next(iter(preferred))]
        preferred[name] = directory

    def check_known(self, directory: str) -> None:
        """Raise LOG_DIR_NOT_FOUND if this broker has no such directory."""
        if directory not in self._node.config.storage.log_dirs:
            raise ApiError(
                ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir {directory} is not found in the config."
            )

    def _check_online(self, directory: str) -> None:
        if directory not in self._node.store.directories:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {directory} is offline")

    def resume(self) -> None:
        """Begin again with the moves that the end of the last process interrupted."""
        interrupted, self._node.store.interrupted_moves = self._node.store.interrupted_moves, {}
        for name, directory in interrupted.items():
            topic = self._node.topics.named(name.topic)
            partition = None if topic is None else topic.partitions.get(name.partition)
            if partition is None or partition.log is None:
                continue
            try:
                self.move(partition, directory)
            except ApiError as error:
                self._node.report(f"the move of {name} to {directory} is not resumed: {error}")

    def _cancel(self, partition: Partition) -> None:
        move = self.moves.pop(partition)
        if move.target in self._node.store.directories:
            move.abandon()

    # -- copying -------------------------------------------------------------------------

    def _schedule(self, delay_ms: float) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._node.timers.at(self._node.clock.monotonic_ms() + delay_ms, self._step)

    def _step(self) -> None:
        """Copy a little of the next move."""
        self._is_scheduled = False
        self._cancel_impossible()
        if not self.moves:
            return
        partition = next(iter(self.moves))
        move = self.moves.pop(partition)
        self.moves[partition] = move  # the others have their turn first
        wait_ms = self._wait_ms()
        if wait_ms <= 0 or move.is_caught_up:
            wait_ms = self._advance(partition, move)
        self._schedule(wait_ms)

    def _cancel_impossible(self) -> None:
        """Give up moves whose replica or directory is gone, a few at a time: all have a turn."""
        for partition, move in list(islice(self.moves.items(), CHECKED_AT_ONCE)):
            is_usable = move.target in self._node.store.directories
            if partition.removed or partition.log is not move.log or not is_usable:
                self._cancel(partition)

    def _wait_ms(self) -> float:
        node = self._node
        rate = node.config.replication.replica_alter_log_dirs_io_max_bytes_per_second
        now_ms = node.clock.monotonic_ms()
        self._limit = rate_limit(self._limit, rate, now_ms)
        return 0.0 if self._limit is None else self._limit.wait_ms(now_ms)

    def _advance(self, partition: Partition, move: LogMove) -> float:
        """Copy some records, or complete the move. Return how long to wait for the next step."""
        node = self._node
        try:
            most = COPIED_AT_ONCE
            if self._limit is not None:
                most = min(most, max(SMALLEST_COPY, self._limit.rate))
            size = move.copy(most, node.wall_ms)
            if size and self._limit is not None:
                self._limit.charge(size, node.clock.monotonic_ms())
            if size or not self._may_complete(partition):
                return PAUSE_MS if size else WAIT_MS
            moved = move.complete(node.wall_ms)
        except ApiError as error:
            node.report(f"the move of {partition.name} to {move.target} is given up: {error}")
            self._cancel(partition)
            return PAUSE_MS
        except OSError as error:
            del self.moves[partition]
            node.store.directory_failed(move.target, error)
            return PAUSE_MS
        if moved is None:
            return WAIT_MS
        del self.moves[partition]
        partition.log = moved
        moved.reconfigure(node.hosted_logs.log_config(partition.topic.name))
        for tell in node.hosted_logs.on_log_moved:
            tell(partition)
        partition.notify()
        return PAUSE_MS

    def _may_complete(self, partition: Partition) -> bool:
        """Return False while an append waits that has looked at the present log already."""
        leader = partition.leader
        return leader is None or (leader.delayed is None and not leader.unwritten)

    def by_name(self) -> dict[TopicPartition, LogMove]:
        """Return the moves by partition."""
        return {each.log.topic_partition: each for each in self.moves.values()}
