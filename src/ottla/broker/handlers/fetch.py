"""Fetch, versions 4 to 18: read what is there, or park until it is, within the consumer's limits.

A request is answered when min_bytes are readable, when a partition has an error or has
diverged, or when max_wait_ms have passed. Reads stop at the high watermark, or at the
last stable offset for read_committed. KIP-227 sessions answer only what changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.codecs.fetch import (
    FIRST_TOPIC_ID,
    FetchRequest,
    PartitionData,
    Records,
    decode_fetch,
    encode_fetch_response,
)
from ottla.broker.context import RequestContext
from ottla.log.log import Log
from ottla.log.segment.file_slice import FileSlice
from ottla.model.errors import ApiError, ErrorCode
from ottla.replication.fetch_partitions import FetchEntry, Fetcher
from ottla.replication.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, FetchSession, next_epoch
from ottla.replication.partition import Partition
from ottla.replication.timers import Timer

if TYPE_CHECKING:
    from ottla.broker.node import Node

FIRST_FROM_FOLLOWERS = 11
UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
SMALL_READ_BYTES = 32 * 1024  # below this, copying is cheaper than two more system calls


def decoder_of(version: int) -> Callable[..., FetchRequest]:
    """Return the function that decodes this version."""
    return decode_fetch


def handle(node: Node, request: FetchRequest, context: Context) -> None:
    """Answer with what is there, or park the request until there is enough."""
    context.begin(request)
    try:
        context.join_session(request)
    except ApiError as error:
        context.respond(error.code, 0, [], [])
        return
    if not context.answer(final=request.max_wait_ms <= 0):
        context.park(request.max_wait_ms)


def refuse(request: FetchRequest, error: ApiError, context: Context) -> None:
    """Answer with the error for the request and for each of its partitions.

    Versions before 7 have errors for partitions only.
    """
    data = [
        PartitionData(asked.key, asked.partition_index, error.code, -1, -1, -1, None)
        for asked in request.partitions
    ]
    context.respond(error.code, request.session_id, data, [None] * len(data))


class Context(RequestContext):
    """One request under way: answered at once, or parked on its connection."""

    def begin(self, request: FetchRequest) -> None:
        """Take over the limits that the request sets."""
        node = self.node
        self.min_bytes = request.min_bytes
        self.max_bytes = min(request.max_bytes, node.fetch_max_bytes)
        self.isolation_level = request.isolation_level
        self.replica_id = request.replica_id
        self.session: FetchSession | None = None
        self.incremental = False
        self.timer: Timer | None = None
        self.unreadable: tuple[FetchEntry, ...] = ()
        self.find = (
            node.topics.partition_by_id
            if self.version >= FIRST_TOPIC_ID
            else node.topics.partition_by_key
        )

    def join_session(self, request: FetchRequest) -> None:
        """Find the partitions to look at: the request's own, or those of its session."""
        sessions = self.node.fetch_sessions
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id:
                sessions.close(request.session_id)
            self.fetcher = Fetcher(is_follower=request.replica_id >= 0)
            self._follow(request)
            if request.session_epoch == INITIAL_EPOCH:
                self.session = sessions.open(
                    self.fetcher,
                    privileged=request.replica_id >= 0,
                    uses_ids=self.version >= FIRST_TOPIC_ID,
                    now_ms=self.node.monotonic_ms,
                )
            return
        session = sessions.use(
            request.session_id,
            request.session_epoch,
            uses_ids=self.version >= FIRST_TOPIC_ID,
            now_ms=self.node.monotonic_ms,
        )
        self.fetcher = session.fetcher
        self._follow(request)
        for key, index in request.forgotten:
            self.fetcher.forget(key, index)
        if self.fetcher.entries:
            session.epoch = next_epoch(session.epoch)
            self.session = session
            self.incremental = True
        else:
            sessions.close(session.session_id)

    def _follow(self, request: FetchRequest) -> None:
        follow = self.fetcher.follow
        for key, index, leader_epoch, offset, last_epoch, _, max_bytes in request.partitions:
            follow(key, index).move(leader_epoch, offset, last_epoch, max_bytes)

    def answer(self, *, final: bool) -> bool:
        """Reply if there is enough to say, or in any case when `final`."""
        while True:
            data: list[PartitionData] = []
            entries: list[FetchEntry] = []
            if not self._collect(data, entries) and not final:
                return False
            records = self._read(data, entries)
            if records is not None:
                self._reply(data, entries, records)
                return True
            # Look at all of them again: what the unreadable records took is room for others, and
            # others may have been lost with the same directory.

    def _read(self, data: list[PartitionData], entries: list[FetchEntry]) -> list[Records] | None:
        """Return each partition's records, those that are few in memory.

        None if some cannot be read.
        """
        read: list[Records] = []
        for item in data:
            records: Records = item.records
            if item.records is not None and item.records.length <= SMALL_READ_BYTES:
                try:
                    records = _read_all(item.records)
                except OSError as problem:
                    self._give_up(entries[len(read)], problem)
                    return None
            read.append(records)
        return read

    def _collect(self, data: list[PartitionData], entries: list[FetchEntry]) -> bool:
        """Look at every partition that may have something to say; whether it is enough."""
        fetcher = self.fetcher
        readable = 0
        known = 0
        enough = False
        for entry in list(fetcher.dirty) if self.incremental else fetcher.entries.values():
            item = self._look(entry, self.max_bytes - readable, readable == 0)
            if item.error not in UNKNOWN:
                known += 1
            if item.records is not None:
                readable += item.records.length
            elif item.error or item.diverging is not None:
                # A partition that is not there keeps nobody from waiting for the others.
                enough = enough or item.error not in UNKNOWN
            elif self._unchanged(entry, item):
                if self._exhausted(entry, item):
                    fetcher.dirty.pop(entry, None)
                if self.incremental:
                    continue
            data.append(item)
            entries.append(entry)
        if self.incremental:
            known += len(fetcher.entries) - len(entries)
        return enough or not known or readable >= self.min_bytes

    def _unchanged(self, entry: FetchEntry, item: PartitionData) -> bool:
        """Return whether the consumer already knows what a response without records says."""
        return not self.incremental or (
            entry.sent_high_watermark == item.high_watermark
            and entry.sent_log_start_offset == item.log_start_offset
        )

    def _exhausted(self, entry: FetchEntry, item: PartitionData) -> bool:
        """Return whether there is nothing to read until the partition changes."""
        if self.replica_id >= 0:
            partition = entry.partition
            log = None if partition is None else partition.log
            return log is not None and entry.fetch_offset >= log.written_end
        end = item.last_stable_offset if self.isolation_level else item.high_watermark
        return entry.fetch_offset >= end

    def _reply(
        self, data: list[PartitionData], entries: list[FetchEntry], records: list[Records]
    ) -> None:
        session = self.session
        session_id = 0
        if session is not None:
            session_id = session.session_id
            self._note_sent(data, entries)
        self.respond(ErrorCode.NONE, session_id, data, records)

    def respond(
        self,
        code: ErrorCode,
        session_id: int,
        data: list[PartitionData],
        records: list[Records],
    ) -> None:
        """Answer with an error for the request, and what there is to say about partitions."""
        self.complete_parts(
            encode_fetch_response(
                self.version, self.correlation_id, code, session_id, data, records, self.throttle_ms
            )
        )

    def _note_sent(self, data: list[PartitionData], entries: list[FetchEntry]) -> None:
        """Remember what the consumer knows now."""
        for item, entry in zip(data, entries, strict=True):
            entry.sent_high_watermark = item.high_watermark
            entry.sent_log_start_offset = item.log_start_offset
            if item.records is not None and self.incremental:
                self.fetcher.served(entry)

    def _give_up(self, entry: FetchEntry, problem: OSError) -> None:
        """Answer with an error for a partition whose records cannot be read."""
        assert entry.partition is not None
        self.node.storage_failed(entry.partition, problem)
        self.unreadable = (*self.unreadable, entry)

    def _look(self, entry: FetchEntry, room: int, first: bool) -> PartitionData:
        """Read one partition as far as `room` allows."""
        partition = entry.partition
        try:
            if partition is None or partition.removed:
                partition = self.find(entry.key, entry.index)
                if self.session is not None:
                    entry.watch(partition)
                else:
                    entry.partition = partition
            log = partition.log
            if log is None:
                log = partition.online_log()
            if entry in self.unreadable:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
            if entry.current_leader_epoch != -1:
                partition.check_leader_epoch(entry.current_leader_epoch)
            if partition.leader is None:
                self._check_follower(partition)
            if entry.last_fetched_epoch >= 0:
                diverging = self._diverging(entry, partition)
                if diverging is not None:
                    return PartitionData(
                        entry.key,
                        entry.index,
                        0,
                        log.high_watermark,
                        log.last_stable_offset,
                        log.log_start_offset,
                        None,
                        diverging,
                    )
            if self.replica_id >= 0:
                self._record_fetch(partition, entry)
                upto = log.written_end
            elif self.isolation_level:
                upto = log.last_stable_offset
            else:
                upto = log.high_watermark
            records = None
            if room > 0 or first:
                records = log.read(
                    entry.fetch_offset, min(entry.max_bytes, room), upto, at_least_one=first
                )
            return PartitionData(
                entry.key,
                entry.index,
                0,
                log.high_watermark,
                log.last_stable_offset,
                log.log_start_offset,
                records,
            )
        except ApiError as error:
            return PartitionData(entry.key, entry.index, error.code, -1, -1, -1, None)
        except OSError as error:
            assert partition is not None
            code, _ = self.node.storage_failed(partition, error)
            return PartitionData(entry.key, entry.index, code, -1, -1, -1, None)

    def _check_follower(self, partition: Partition) -> None:
        """Raise NOT_LEADER_OR_FOLLOWER unless a consumer may read from a follower (KIP-392)."""
        if self.replica_id >= 0 or self.version < FIRST_FROM_FOLLOWERS:
            raise partition.not_leader()

    def _record_fetch(self, partition: Partition, entry: FetchEntry) -> None:
        """Tell the leader how far the follower that fetches has come."""
        partition.as_leader().record_fetch(
            self.replica_id, entry.fetch_offset, self.node.monotonic_ms
        )

    def _readable_end(self, log: Log) -> int:
        """Return up to where the sender may read: followers up to the end of the log."""
        if self.replica_id >= 0:
            return log.written_end
        return log.last_stable_offset if self.isolation_level else log.high_watermark

    def _diverging(self, entry: FetchEntry, partition: Partition) -> tuple[int, int] | None:
        """Return where the client's log differs from ours, if its epoch shows that (KIP-595)."""
        epoch, end_offset = partition.end_offset_for_epoch(entry.last_fetched_epoch)
        if epoch < 0 or entry.fetch_offset < partition.online_log().log_start_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)  # older than all that the log has
        if epoch < entry.last_fetched_epoch or end_offset < entry.fetch_offset:
            return epoch, end_offset
        return None

    def park(self, max_wait_ms: int) -> None:
        """Wait for data, at most this long."""
        self.timer = self.node.timers.at(self.node.monotonic_ms + max_wait_ms, self.finish)
        self.fetcher.on_change = self.partition_changed
        self.defer()
        if self.session is None:
            for entry in self.fetcher.entries.values():
                if entry.partition is not None:
                    entry.watch(entry.partition)

    def partition_changed(self, entry: FetchEntry) -> None:
        """Answer soon if what is new in a partition is enough."""
        partition = entry.partition
        if (
            self.min_bytes <= 1
            or partition is None
            or partition.removed
            or partition.log is None
            or partition.leader is None
            or self._readable() >= self.min_bytes
        ):
            self.fetcher.on_change = None
            self.node.completed.append(self)

    def _readable(self) -> int:
        """Return how many bytes could be sent now; enough if a partition has an error.

        This runs inside somebody else's commit, so no partition's trouble may leave it.
        """
        readable = 0
        for entry in self.fetcher.dirty:
            partition = entry.partition
            log = None if partition is None or partition.removed else partition.log
            if log is None:
                return self.min_bytes
            upto = self._readable_end(log)
            try:
                readable += min(log.bytes_available(entry.fetch_offset, upto), entry.max_bytes)
            except (ApiError, OSError):
                return self.min_bytes
        return readable

    def finish(self) -> None:
        """Answer with what is there now; the connection goes on."""
        if not self.is_wanted:
            return
        self.abandon()
        self.answer(final=True)

    def abandon(self) -> None:
        """Stop waiting."""
        self.fetcher.on_change = None
        if self.timer is not None:
            self.timer.cancel()
        if self.session is None:
            for entry in self.fetcher.entries.values():
                entry.unwatch()


def _read_all(records: FileSlice) -> bytes:
    content = records.file.pread(records.length, records.position)
    if len(content) != records.length:
        raise OSError(f"{records.file.path} is shorter than its log says")
    return content
