"""Fetch, versions 4 to 18: read what is there, or park until it is, within the consumer's limits.

A request is answered when min_bytes are readable, when a partition has an error or has
diverged, or when max_wait_ms have passed. Reads stop at the high watermark, or at the
last stable offset for read_committed. KIP-227 sessions answer only what changed.

A response has at most max_bytes of records. It is also full when it holds MOST_COPIED_BYTES in
memory or MOST_RANGES ranges of files: other partitions have their turn with the next fetch.

Fetches of very many partitions are handled in slices (`ottla.broker.large_requests.large_fetch`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.broker.codecs.current_leaders import Leader
from ottla.broker.codecs.fetch_request import FIRST_TOPIC_ID, FetchRequest, decode_fetch
from ottla.broker.codecs.fetch_response import (
    FIRST_WITH_LEADERS,
    PartitionData,
    Records,
    encode_fetch_response,
)
from ottla.broker.codecs.large_request import MOST_PARTITIONS
from ottla.broker.context import WAITING, RequestContext
from ottla.broker.current_leaders import LEADER_ERRORS, CurrentLeaders
from ottla.log.damage import DamagedLog
from ottla.log.log import Log
from ottla.log.lookup import OffsetTiered
from ottla.log.segment.file_slice import FileSlice, FileSlices
from ottla.log.segment.index_jobs import IndexNotReady
from ottla.log.segment.last_write import LastWrite
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps
from ottla.replication.fetch_partitions import FetchEntry, Fetcher
from ottla.replication.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, FetchSession, next_epoch
from ottla.replication.partition import Partition
from ottla.replication.partition_leader import PartitionLeader
from ottla.replication.throttle import RateLimit
from ottla.replication.timers import Timer

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.wire.message import Message
    from ottla.wire.messages.fetch import FetchRequest as FetchMessage

FIRST_FROM_FOLLOWERS: Final = 11
UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
SMALL_READ_BYTES: Final = 32 * 1024  # below this, copying is cheaper than two more system calls
MOST_COPIED_BYTES: Final = 1024 * 1024
MOST_RANGES: Final = 64
HIGH_WATERMARK_DELAY_MS: Final = 5
"""How long a new high watermark waits for more records before it is sent to a follower alone.

Under load it leaves with the next records then, and costs no round trip of its own. Where consumers
read from followers, it is sent at once.
"""

_NO_ERROR: Final = int(ErrorCode.NONE)
_NO_PARTITIONS: Final = Fetcher()

Found: TypeAlias = tuple[int, int, int, int, int, bool]
"""(bytes left, bytes found, bytes in memory, ranges of files, partitions that exist, whether it is
enough for an answer) of the partitions that were looked at."""


def decoder_of(version: int) -> Callable[..., FetchRequest]:
    """Return the function that decodes this version."""
    return decode_fetch


def handle(node: Node, request: FetchRequest, context: Context) -> Steps[None] | None:
    """Answer with what is there, or park the request until there is enough."""
    context.begin(request)
    try:
        context.join_session(request)
    except ApiError as error:
        context.respond(error.code, 0, [], [])
        return None
    if len(context.fetcher.dirty) > MOST_PARTITIONS:
        from ottla.broker.large_requests.large_fetch import answer_in_steps

        return answer_in_steps(context, request.max_wait_ms)
    if not context.answer(final=request.max_wait_ms <= 0):
        context.park(context.patience_ms(request.max_wait_ms))
    return None


def handle_large(node: Node, request: FetchMessage, context: Context) -> Steps[None]:
    """Do the same for a request that names very many partitions."""
    from ottla.broker.large_requests.large_fetch import fetch_in_steps

    return fetch_in_steps(request, context)


def refuse(
    request: FetchRequest | FetchMessage, error: ApiError, context: Context
) -> Message | None:
    """Answer with the error for the request and for each of its partitions.

    Versions before 7 have errors for partitions only.
    """
    if not isinstance(request, FetchRequest):
        from ottla.broker.large_requests.large_fetch import refuse_large

        return refuse_large(request, error)
    data = [
        PartitionData(asked.key, asked.partition_index, error.code, -1, -1, -1, None)
        for asked in request.partitions
    ]
    context.respond(error.code, request.session_id, data, [None] * len(data))
    return None


class Context(RequestContext):
    """One request under way: answered at once, or parked on its connection."""

    leaders: CurrentLeaders | None = None
    """Who leads the partitions that this broker does not lead, if there are any."""
    is_answering = False
    """Whether the answer of a large fetch is being made."""
    changed: FetchEntry | None = None
    """A partition that changed while a large fetch looked at others."""
    fetcher: Fetcher = _NO_PARTITIONS
    """The partitions to look at: none before the request is decoded."""
    replica_id = -1
    replica_epoch = -1
    throttle: RateLimit | None = None
    """The limit of what followers get that are not in sync, if this is one and there is a limit."""
    rack = b""
    incremental = False
    unreadable: tuple[FetchEntry, ...] = ()
    """Partitions whose records could not be read."""
    session: FetchSession | None = None
    held_back: tuple[FetchEntry, ...] = ()
    """Partitions with records that the follower gets later, because of a throttle."""
    timer: Timer | None = None
    has_news = False
    """Whether there is something to say, but no records."""
    tier_waits: tuple[FetchEntry, ...] = ()
    """Partitions whose records are being read from the remote tier."""

    def begin(self, request: FetchRequest) -> None:
        """Take over the limits that the request sets.

        Fields that every fetch reads are set too, because defaults of the class are read slowly.
        """
        node = self.node
        self.session = self.throttle = self.leaders = self.timer = None
        self.unreadable = self.tier_waits = ()
        self.incremental = False
        self.replica_id, self.rack = -1, b""
        self.min_bytes = request.min_bytes
        self.max_bytes = min(request.max_bytes, node.fetch_max_bytes)
        self.isolation_level = request.isolation_level
        if request.replica_id >= 0:
            self.replica_id = request.replica_id
            self.replica_epoch = request.replica_epoch
            self.throttle = node.leader_throttle
        if node.is_rack_aware:
            self.rack = request.rack

    def find(self, entry: FetchEntry) -> Partition:
        """Return the partition of an entry; raise ApiError if it is unknown."""
        topics = self.node.topics
        if self.version >= FIRST_TOPIC_ID:
            return topics.partition_by_id(entry.key, entry.index)
        return topics.partition_by_key(entry.key, entry.index)

    def join_session(self, request: FetchRequest) -> None:
        """Find the partitions to look at: the request's own, or those of its session."""
        sessions = self.node.fetch_sessions
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id:
                sessions.close(request.session_id)
            self.fetcher = Fetcher(is_follower=request.replica_id >= 0)
            self._follow(request)
            if request.session_epoch == INITIAL_EPOCH:
                self.open_session()
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
        if self.fetcher.held_bytes != session.held_bytes:
            sessions.count(session)
        if self.fetcher.entries:
            session.epoch = next_epoch(session.epoch)
            self.session = session
            self.incremental = True
        else:
            sessions.close(session.session_id)

    def open_session(self) -> None:
        """Keep the partitions of the request in a session, if there is room for one."""
        self.session = self.node.fetch_sessions.open(
            self.fetcher,
            privileged=self.replica_id >= 0,
            uses_ids=self.version >= FIRST_TOPIC_ID,
            now_ms=self.node.monotonic_ms,
        )

    def _follow(self, request: FetchRequest) -> None:
        follow = self.fetcher.follow
        for asked in request.partitions:
            follow(asked.key, asked.partition_index).move(
                asked.current_leader_epoch,
                asked.fetch_offset,
                asked.last_fetched_epoch,
                asked.max_bytes,
                asked.log_start_offset,
            )

    def answer(self, *, final: bool) -> bool:
        """Reply if there is enough to say, or in any case when `final`."""
        fetcher = self.fetcher
        while True:
            data: list[PartitionData] = []
            entries: list[FetchEntry] = []
            if self.tier_waits:
                self.tier_waits = ()
            looked = list(fetcher.dirty) if self.incremental else fetcher.entries.values()
            found = self.collect(looked, data, entries, (self.max_bytes, 0, 0, 0, 0, False))
            if not final and not self.is_enough(found, entries):
                self.has_news = self.incremental and bool(data)
                return False
            records = self.read(data, entries)
            if records is not None:
                self._reply(data, entries, records)
                return True
            # Look at all of them again: what the unreadable records took is room for others, and
            # others may have been lost with the same directory.

    def read(self, data: list[PartitionData], entries: list[FetchEntry]) -> list[Records] | None:
        """Return each partition's records, those that are few in memory.

        None if some cannot be read.
        """
        read: list[Records] = []
        for item in data:
            found = item.records
            records: Records
            if found is None:
                records = None
            elif isinstance(found, LastWrite):
                records = found.content
            elif found.length > SMALL_READ_BYTES:
                records = found
            else:
                try:
                    records = _read_all(found)
                except OSError as problem:
                    self._give_up(entries[len(read)], problem)
                    return None
            read.append(records)
        return read

    def collect(
        self,
        looked: Iterable[FetchEntry],
        data: list[PartitionData],
        entries: list[FetchEntry],
        found: Found,
    ) -> Found:
        """Look at partitions that may have something to say; add to what was found before."""
        fetcher = self.fetcher
        room, readable, copied, ranges, known, enough = found
        for entry in looked:
            if room <= 0 and readable and self.incremental:
                enough = True  # the others stay changed
                break
            item = self._look(entry, room, readable == 0)
            if not item.error or item.error not in UNKNOWN:
                known += 1
            if item.records is not None:
                length = item.records.length
                readable += length
                room -= length
                if length <= SMALL_READ_BYTES or type(item.records) is LastWrite:
                    copied += length
                else:
                    ranges += 1
                if copied >= MOST_COPIED_BYTES or ranges >= MOST_RANGES:
                    room = 0
                    enough = True
            elif item.error or item.diverging is not None or item.preferred_read_replica >= 0:
                # The fetch may wait for other partitions even if one does not exist.
                enough = enough or item.error not in UNKNOWN
            elif self._unchanged(entry, item):
                if self._exhausted(entry, item):
                    fetcher.exhausted(entry, watch=self.session is not None)
                if self.incremental:
                    continue
            data.append(item)
            entries.append(entry)
        return room, readable, copied, ranges, known, enough

    def is_enough(self, found: Found, entries: list[FetchEntry]) -> bool:
        """Return True if what was found is enough for an answer."""
        _, readable, _, _, known, enough = found
        if self.incremental:
            known += len(self.fetcher.entries) - len(entries)
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
        if self.throttle is not None:
            self.charge(data, entries)
        if session is not None:
            session_id = session.session_id
            self.note_sent(data, entries)
        else:
            self.fetcher.let_go()
        self.respond(_NO_ERROR, session_id, data, records)

    def respond(
        self,
        code: int,
        session_id: int,
        data: list[PartitionData],
        records: list[Records],
    ) -> None:
        """Answer with an error for the request, and what there is to say about partitions."""
        self.complete_parts(
            encode_fetch_response(
                self.version,
                self.correlation_id,
                code,
                session_id,
                data,
                records,
                self.throttle_ms,
                () if self.leaders is None else self.leaders.endpoints(),
            )
        )

    def note_sent(self, data: list[PartitionData], entries: list[FetchEntry]) -> None:
        """Remember what the consumer knows now."""
        for number, item in enumerate(data):
            entry = entries[number]
            # A follower that has to cut its log off takes nothing else from the answer.
            entry.sent_high_watermark = item.high_watermark if item.diverging is None else -1
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
                entry.unwatch()
                partition = entry.partition = self.find(entry)
            log = partition.log
            if log is None:
                log = partition.online_log()
            if entry in self.unreadable:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
            if 0 <= entry.current_leader_epoch != partition.leader_epoch:
                partition.check_leader_epoch(entry.current_leader_epoch)
            if partition.leader is None:
                self._check_follower(partition)
            last_stable_offset = log.last_stable_offset
            if entry.last_fetched_epoch >= 0 and (
                entry.last_fetched_epoch != partition.leader_epoch
                or not log.log_start_offset <= entry.fetch_offset <= log.written_end
            ):
                diverging = self._diverging(entry, partition)
                if diverging is not None:
                    return PartitionData(
                        entry.key,
                        entry.index,
                        0,
                        log.high_watermark,
                        last_stable_offset,
                        log.log_start_offset,
                        None,
                        diverging,
                    )
            if self.replica_id >= 0:
                if self.timer is None:  # not again when it has waited for more
                    self._record_fetch(partition, entry)
                    last_stable_offset = log.last_stable_offset
                upto = log.written_end
                if self.throttle is not None and self._is_held_back(partition, log):
                    entry.unwatch()
                    self.held_back = (*self.held_back, entry)
                    room, first = 0, False
            elif self.isolation_level:
                upto = last_stable_offset
            else:
                upto = log.high_watermark
            if self.rack and partition.leader is not None:
                preferred = self._preferred(partition.leader, entry.fetch_offset)
                if preferred >= 0:
                    return self._sent_elsewhere(entry, log, preferred)
            records: FileSlice | LastWrite | None = None
            if (room > 0 or first) and entry.fetch_offset != upto:
                most = min(entry.max_bytes, room)
                records = log.last_write(entry.fetch_offset, most, upto)
                if records is None:
                    records = log.read(entry.fetch_offset, most, upto, at_least_one=first)
            data = PartitionData(
                entry.key,
                entry.index,
                0,
                log.high_watermark,
                last_stable_offset,
                log.log_start_offset,
                records,
            )
            if self.isolation_level and isinstance(records, FileSlice) and self.replica_id < 0:
                return self._with_aborted(entry, log, data, records, upto)
            return data
        except OffsetTiered:
            assert partition is not None
            return self._look_into_tier(entry, partition, room, first)
        except ApiError as error:
            refused = PartitionData(entry.key, entry.index, error.code, -1, -1, -1, None)
            if error.code in LEADER_ERRORS and self.version >= FIRST_WITH_LEADERS:
                refused.leader = self._leader(entry)
            return refused
        except OSError as problem:
            assert partition is not None
            code, _ = self.node.storage_failed(partition, problem)
            return PartitionData(entry.key, entry.index, code, -1, -1, -1, None)

    def _with_aborted(
        self, entry: FetchEntry, log: Log, data: PartitionData, records: FileSlice, upto: int
    ) -> PartitionData:
        """Add the aborted transactions; leave the records out until these can be found."""
        try:
            data.aborted = log.aborted_transactions(entry.fetch_offset, records, upto)
        except IndexNotReady:
            data.records = None
        return data

    def _look_into_tier(
        self, entry: FetchEntry, partition: Partition, room: int, first: bool
    ) -> PartitionData:
        """Read a partition at an offset that is in the remote tier only."""
        from ottla.broker.remote_tier.fetch_reads import read_tier

        try:
            return read_tier(self, entry, partition, partition.online_log(), room, first)
        except ApiError as error:
            return PartitionData(entry.key, entry.index, error.code, -1, -1, -1, None)

    def wait_for_tier(self, entry: FetchEntry) -> None:
        """Note that the records of a partition are being read from the remote tier."""
        self.tier_waits = (*self.tier_waits, entry)

    def tier_answered(self) -> None:
        """Look again at the end of this wake-up, because a read from the tier has ended."""
        if self.is_wanted and self.fetcher.on_change is not None:
            self.node.completed.append(TierArrival(self))

    def _is_throttled(self, partition: Partition, log: Log) -> bool:
        return self.node.throttled_leaders.has(
            partition, log.config.leader_replication_throttled_replicas
        )

    def _is_held_back(self, partition: Partition, log: Log) -> bool:
        """Return True if a follower must wait, because too much was sent to throttled replicas."""
        assert self.throttle is not None
        return (
            self.replica_id not in partition.as_leader().isr
            and self._is_throttled(partition, log)
            and self.throttle.wait_ms(self.node.monotonic_ms) > 0
        )

    def charge(self, data: list[PartitionData], entries: list[FetchEntry]) -> None:
        """Count what is sent to a follower, of the replicas that are throttled."""
        if self.throttle is None:
            return
        size = 0
        for item, entry in zip(data, entries, strict=True):
            partition, records = entry.partition, item.records
            if records is None or partition is None or partition.log is None:
                continue
            if self._is_throttled(partition, partition.log):
                size += records.length
        self.throttle.charge(size, self.node.monotonic_ms)

    def _preferred(self, leader: PartitionLeader, offset: int) -> int:
        """Return the replica that the consumer should read from; -1 for this one (KIP-392)."""
        from ottla.broker.replicas.replica_selector import THE_LEADER, preferred_replica

        log = leader.partition.online_log()
        if self.replica_id >= 0 or not log.log_start_offset <= offset <= log.log_end_offset:
            return THE_LEADER
        rack = self.rack.decode(errors="replace")
        return preferred_replica(self.node, leader, rack, offset, self.connection.listener)

    def _sent_elsewhere(self, entry: FetchEntry, log: Log, replica: int) -> PartitionData:
        """Name the replica to read from, without records."""
        return PartitionData(
            entry.key,
            entry.index,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            None,
            preferred_read_replica=replica,
        )

    def _leader(self, entry: FetchEntry) -> Leader | None:
        """Return who leads a partition that this broker does not lead, for the response."""
        if self.leaders is None:
            self.leaders = CurrentLeaders(self.node, self.connection.listener)
        return self.leaders.add(entry.key, entry.index, is_id=True)

    def _check_follower(self, partition: Partition) -> None:
        """Raise NOT_LEADER_OR_FOLLOWER unless a consumer may read from a follower (KIP-392)."""
        if self.replica_id >= 0 or self.version < FIRST_FROM_FOLLOWERS:
            raise partition.not_leader()

    def _record_fetch(self, partition: Partition, entry: FetchEntry) -> None:
        """Tell the leader how far the follower that fetches has come."""
        partition.as_leader().record_fetch(
            self.replica_id,
            entry.fetch_offset,
            self.node.monotonic_ms,
            self.replica_epoch,
            entry.log_start_offset,
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

    def patience_ms(self, max_wait_ms: int) -> int:
        """Return how long to wait: not long if a follower does not know the high watermark."""
        if self.tier_waits:
            return max(max_wait_ms, self.node.config.tiered.remote_fetch_max_wait_ms)
        if self.replica_id >= 0 and self.has_news:
            return min(max_wait_ms, self._high_watermark_delay_ms())
        return max_wait_ms

    def _high_watermark_delay_ms(self) -> int:
        return 0 if self.node.is_rack_aware else HIGH_WATERMARK_DELAY_MS

    def park(self, max_wait_ms: int) -> None:
        """Wait for data, at most this long."""
        self.wait_for_changes(max_wait_ms)
        fetcher = self.fetcher
        # In a session, entries that are not dirty watch their partitions already.
        for entry in fetcher.entries.values() if self.session is None else fetcher.dirty:
            if entry.partition is not None and entry not in self.held_back:
                entry.watch(entry.partition)

    def wait_for_changes(self, max_wait_ms: int) -> None:
        """Wait for partitions that are watched, or will be now."""
        node = self.node
        if self.replica_id >= 0 and node.replica_fetchers is not None:
            waits = node.replica_fetchers.follower_waits
            max_wait_ms = waits.begin(self, max_wait_ms, node.monotonic_ms)
        self.timer = node.timers.at(node.monotonic_ms + max_wait_ms, self.finish)
        self.fetcher.on_change = self.partition_changed
        self.defer()

    def partition_changed(self, entry: FetchEntry) -> None:
        """Answer soon if what is new in a partition is enough."""
        partition = entry.partition
        if self.replica_id >= 0 and self._has_all_records(entry):
            self._hurry()
            return
        if self.tier_waits and entry in self.tier_waits and not self._is_gone(entry):
            return  # what is new is not what it waits for
        if (
            (self.min_bytes <= 1 and not self.isolation_level)
            or partition is None
            or partition.removed
            or partition.log is None
            or (partition.leader is None and not self.isolation_level)
            or (self.isolation_level and self._is_refused(entry, partition))
            or self._has_committed(entry, partition.log)
            or self._readable() >= max(self.min_bytes, 1)
        ):
            self.answer_soon()

    def _has_committed(self, entry: FetchEntry, log: Log) -> bool:
        """Return True if there is enough for a read_committed consumer with min_bytes 0 or 1.

        That is the usual case, and quick to find out.
        """
        return (
            self.min_bytes <= 1
            and self.replica_id < 0
            and entry.max_bytes > 0
            and log.log_start_offset <= entry.fetch_offset < log.last_stable_offset
        )

    def _is_gone(self, entry: FetchEntry) -> bool:
        """Return True if a partition is not led here any more."""
        partition = entry.partition
        return partition is None or partition.removed or partition.leader is None

    def answer_soon(self) -> None:
        """Answer at the end of this wake-up, with what is there then."""
        self.fetcher.on_change = None
        self.node.completed.append(self)

    def _has_all_records(self, entry: FetchEntry) -> bool:
        """Return True if only the high watermark or the log start of a partition is new."""
        partition = entry.partition
        return (
            partition is not None
            and not partition.removed
            and partition.leader is not None
            and partition.log is not None
            and entry.current_leader_epoch == partition.leader_epoch
            and entry.fetch_offset >= partition.log.written_end
        )

    def _hurry(self) -> None:
        """Answer a follower soon, with more records if some come."""
        deadline_ms = self.node.monotonic_ms + self._high_watermark_delay_ms()
        if self.timer is not None and self.timer.deadline_ms > deadline_ms:
            self.timer.cancel()
            self.timer = self.node.timers.at(deadline_ms, self.finish)

    def _is_refused(self, entry: FetchEntry, partition: Partition) -> bool:
        """Return True if a consumer must ask elsewhere, or learn of another leader first."""
        return (partition.leader is None and self.version < FIRST_FROM_FOLLOWERS) or (
            0 <= entry.current_leader_epoch != partition.leader_epoch
        )

    def _readable(self) -> int:
        """Return how many bytes could be sent now; enough if a partition has an error.

        This runs inside somebody else's commit, so no partition's trouble may leave it.
        """
        readable = 0
        if len(self.fetcher.dirty) > MOST_PARTITIONS:
            return max(self.min_bytes, 1)  # too many to look at for each change
        for entry in self.fetcher.dirty:
            partition = entry.partition
            log = None if partition is None or partition.removed else partition.log
            if log is None:
                return max(self.min_bytes, 1)
            upto = self._readable_end(log)
            try:
                readable += min(log.bytes_available(entry.fetch_offset, upto), entry.max_bytes)
            except (ApiError, OSError):
                return max(self.min_bytes, 1)
        return readable

    def finish(self) -> None:
        """Answer with what is there now; the connection goes on."""
        if self.state != WAITING or self.connection.closed or self.is_answering:
            return
        self.abandon()
        fetcher = self.fetcher
        if len(fetcher.dirty if self.incremental else fetcher.entries) > MOST_PARTITIONS:
            from ottla.broker.large_requests.large_fetch import answer_in_steps

            self.is_answering = True
            self.run_in_slices(answer_in_steps(self, 0))
        else:
            self.answer(final=True)

    def abandon(self) -> None:
        """Stop waiting."""
        if self.replica_id >= 0 and self.node.replica_fetchers is not None:
            self.node.replica_fetchers.follower_waits.end(self)
        self.fetcher.on_change = None
        if self.timer is not None:
            self.timer.cancel()
        if self.session is not None:
            return
        if len(self.fetcher.entries) > MOST_PARTITIONS:
            self.node.sliced_work.run(self.fetcher.unwatch_in_steps())
        else:
            for entry in self.fetcher.entries.values():
                entry.unwatch()


class TierArrival:
    """A fetch that waits, and may have what it needs from the remote tier now."""

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context

    def finish(self) -> None:
        """Answer if there is enough, else go on waiting."""
        context = self._context
        is_waiting = context.is_wanted and context.fetcher.on_change is not None
        if is_waiting and not context.is_answering and context.answer(final=False):
            context.abandon()


def _read_all(records: FileSlice | FileSlices) -> bytes:
    content = records.read()
    if len(content) != records.length:
        file = records.file if isinstance(records, FileSlice) else records.parts[0].file
        raise DamagedLog(file.path, "and shorter than its log says")
    return content
