"""A follower's connection to one leader: it fetches for all partitions that this leader leads.

There is one request in flight. A request names the partitions whose position has changed since
the last one (incremental sessions), so a partition with nothing new costs nothing. What comes
is queued in the logs and written when the wake-up ends, all logs together. Only then the next
request leaves: its offsets tell the leader what this broker has.

    waiting     nothing to fetch, or a pause after a failure
    in flight   a request was sent
    writing     the response is in the logs' queues until the wake-up ends

A partition with an error waits for a while, or until the metadata gives it another leader epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from errno import EIO
from typing import TYPE_CHECKING, Final

from ottla.model.errors import ApiError, ErrorCode
from ottla.ports import Clock, Peer, Response
from ottla.replication.fetch_session import INITIAL_EPOCH, next_epoch
from ottla.replication.partition import Partition, QueuedWrite
from ottla.replication.replica_fetch_codec import (
    FETCH_VERSION,
    Fetched,
    Position,
    decode_reply,
    encode_request,
)
from ottla.replication.timers import Timers
from ottla.wire.api_table import ApiKey

if TYPE_CHECKING:
    from ottla.config.broker_settings.replication import ReplicationConfig

PAUSE_MS: Final = 50
"""How long a partition or a connection rests after an error. Kafka waits for a second."""
REBUILD_PAUSE_MS: Final = 500
"""How long a partition rests if it cannot be rebuilt from the remote tier yet."""
TIMEOUT_MS: Final = 30_000
_FETCH: Final = int(ApiKey.FETCH)
_SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class FetcherHost(ABC):
    """What a fetcher needs of its broker.

    It is a base class, not a protocol: compiled code calls its methods directly.
    """

    @property
    @abstractmethod
    def node_id(self) -> int: ...

    @property
    @abstractmethod
    def timers(self) -> Timers: ...

    @property
    @abstractmethod
    def clock(self) -> Clock: ...

    @property
    @abstractmethod
    def wall_ms(self) -> int: ...

    @property
    @abstractmethod
    def broker_epoch(self) -> int: ...

    @property
    @abstractmethod
    def replication(self) -> ReplicationConfig: ...

    @property
    @abstractmethod
    def is_throttled(self) -> bool:
        """True if fetches of some replicas are limited."""

    @abstractmethod
    def throttle_ms(self, partition: Partition) -> float:
        """Return for how long a partition must not be fetched; 0 if it may be."""

    @abstractmethod
    def charge(self, partition: Partition, size: int) -> None:
        """Count what was fetched."""

    @abstractmethod
    def write_later(self, write: QueuedWrite) -> None:
        """Have something written when the wake-up ends."""

    @abstractmethod
    def when_written(self, fetcher: ReplicaFetcher) -> None:
        """Call `finish` of a fetcher after everything of this wake-up is written."""

    @abstractmethod
    def storage_failed(self, partition: Partition, problem: OSError) -> object:
        """Handle a storage error of a log."""

    @abstractmethod
    def find_log_start(
        self, peer: Peer, partition: Partition, done: Callable[[int | None], None]
    ) -> None:
        """Ask the leader where its log begins; None if it does not say."""

    @abstractmethod
    def rebuild_from_tier(
        self, peer: Peer, partition: Partition, done: Callable[[bool], None]
    ) -> None:
        """Let a log begin where the leader's local segments do; False if that is not possible."""


class FollowedPartition:
    """A partition that this fetcher fetches."""

    __slots__ = ("fetched", "is_resting", "partition", "requested_offset")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.fetched: Fetched | None = None
        """What the last response said, until it is written."""
        self.is_resting = False
        self.requested_offset = -1
        """The offset that the leader was asked for last."""

    # -- QueuedWrite ---------------------------------------------------------------------

    def write(self) -> None:
        """Write what was fetched, also if this broker has become the leader since.

        It is queued in the log as bytes of a buffer that the next wake-up uses again.
        """
        log = self.partition.log
        if log is None:
            raise OSError(EIO, "the log directory is offline")
        log.write_queued()

    def refuse_unwritten(self, code: ErrorCode, message: str) -> None:
        """Forget what could not be written; it is fetched again."""
        self.fetched = None


class ReplicaFetcher:
    """Fetches from one leader."""

    def __init__(self, host: FetcherHost, peer: Peer) -> None:
        self._host = host
        self._peer = peer
        self._partitions: dict[tuple[bytes, int], FollowedPartition] = {}
        self._changed: dict[tuple[bytes, int], None] = {}
        """Partitions whose position the leader does not know yet."""
        self._forgotten: dict[tuple[bytes, int], None] = {}
        self._session = (0, INITIAL_EPOCH)
        self._broker_epoch = -1
        """The epoch of this broker in the requests of the session."""
        self._taken: list[FollowedPartition] | None = None
        """The partitions of a response that is not written yet."""
        self._config: ReplicationConfig | None = None
        self._limits = (0, 0, 0, 0)
        """The limits of a request, as this configuration has them."""
        self._is_busy = False
        self._is_paused = False
        self._is_scheduled = False
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._partitions)

    def follow(self, partition: Partition) -> None:
        """Fetch a partition from where its log ends."""
        key = partition.topic.topic_id, partition.index
        self._partitions[key] = FollowedPartition(partition)
        self._forgotten.pop(key, None)
        self._changed[key] = None
        self._fetch_soon()

    def forget(self, partition: Partition) -> None:
        """Stop fetching a partition."""
        key = partition.topic.topic_id, partition.index
        if self._partitions.pop(key, None) is not None:
            self._changed.pop(key, None)
            self._forgotten[key] = None

    def close(self) -> None:
        """Stop fetching from this leader."""
        self._is_closed = True
        self._peer.close()

    # -- requests ------------------------------------------------------------------------

    def _fetch_soon(self) -> None:
        """Send a request when the wake-up ends: more partitions may come until then."""
        if not (self._is_busy or self._is_paused or self._is_scheduled or self._is_closed):
            self._is_scheduled = True
            self._host.when_written(self)

    def finish(self) -> None:
        """Go on when everything of the wake-up is written: follow the leader, ask for more."""
        self._is_scheduled = False
        if self._taken is not None:
            taken, self._taken = self._taken, None
            self._is_busy = False
            for followed in taken:
                self._follow_leader(followed)
        self._fetch()

    def _fetch(self) -> None:
        if self._is_busy or self._is_paused or self._is_closed or not self._partitions:
            return
        if self._host.broker_epoch != self._broker_epoch:
            # The leader learns the epoch of a replica only with a partition in a request.
            self._broker_epoch = self._host.broker_epoch
            self._session = (0, INITIAL_EPOCH)
        epoch = self._session[1]
        keys = list(self._partitions) if epoch == INITIAL_EPOCH else list(self._changed)
        if self._host.is_throttled:
            self._hold_back(keys)
        known: list[Position] = []
        for key in keys:
            position = self._position(self._partitions[key])
            if position is not None:
                known.append(position)
        if epoch == INITIAL_EPOCH and not known:
            return
        config = self._host.replication
        if config is not self._config:
            self._config = config
            self._limits = (
                config.replica_fetch_wait_max_ms,
                config.replica_fetch_min_bytes,
                config.replica_fetch_response_max_bytes,
                config.replica_fetch_max_bytes,
            )
        body = encode_request(
            self._host.node_id,
            self._broker_epoch,
            self._limits,
            self._session,
            known,
            () if epoch == INITIAL_EPOCH else self._forgotten,
        )
        self._changed.clear()
        self._forgotten.clear()
        self._is_busy = True
        self._peer.send(_FETCH, FETCH_VERSION, body, TIMEOUT_MS, self._received)

    def _hold_back(self, keys: list[tuple[bytes, int]]) -> None:
        """Set partitions aside for which too much was fetched."""
        for key in keys:
            followed = self._partitions[key]
            pause_ms = self._host.throttle_ms(followed.partition)
            if pause_ms > 0:
                self._rest(followed, pause_ms)

    def _position(self, followed: FollowedPartition) -> Position | None:
        partition = followed.partition
        log = partition.log
        if log is None or followed.is_resting or partition.follower is None:
            return None
        followed.requested_offset = log.written_end
        return Position(
            partition.topic.topic_id,
            partition.index,
            partition.leader_epoch,
            log.written_end,
            log.leader_epochs.latest_epoch,
            log.log_start_offset,
        )

    # -- responses -----------------------------------------------------------------------

    def _received(self, result: Response | OSError) -> None:
        if self._is_closed:
            return
        if isinstance(result, OSError):
            self._is_busy = False
            self._start_over()
            self._pause()
            return
        buffer, view, start, end = result
        reply = decode_reply(buffer, start, end)
        if reply.error:
            self._is_busy = False
            self._start_over()
            if reply.error in _SESSION_ERRORS:
                self._fetch_soon()
            else:
                self._pause()
            return
        self._session = (
            (reply.session_id, next_epoch(max(self._session[1], INITIAL_EPOCH)))
            if reply.session_id
            else (0, INITIAL_EPOCH)
        )
        taken: list[FollowedPartition] = []
        for fetched in reply.partitions:
            key = fetched.topic_id, fetched.partition_index
            followed = self._partitions.get(key)
            if followed is not None and self._take(followed, key, fetched, buffer, view):
                followed.fetched = fetched
                taken.append(followed)
        self._taken = taken
        self._host.when_written(self)

    def _take(
        self,
        followed: FollowedPartition,
        key: tuple[bytes, int],
        fetched: Fetched,
        buffer: bytearray,
        view: memoryview,
    ) -> bool:
        """Take what the leader says about one partition; return True if its offsets count."""
        partition = followed.partition
        log, follower = partition.log, partition.follower
        if follower is None or log is None or followed.is_resting:
            return False
        if log.written_end != followed.requested_offset:
            self._changed[key] = None  # this answers a request from before a truncation
            return False
        try:
            if fetched.error:
                self._take_error(followed, fetched.error)
                return False
            if fetched.diverging is not None:
                follower.truncate(*fetched.diverging)
                self._changed[key] = None
                return False
            if fetched.end > fetched.start:
                self._changed[key] = None
                follower.append(buffer, view, fetched.start, fetched.end, self._host.wall_ms)
                self._host.write_later(followed)
                if self._host.is_throttled:
                    self._host.charge(partition, fetched.end - fetched.start)
        except ApiError:
            self._rest(followed)
            return False
        except OSError as error:
            self._rest(followed)
            self._host.storage_failed(partition, error)
            return False
        return True

    def _follow_leader(self, followed: FollowedPartition) -> None:
        """Follow the leader's offsets, if what came with them is written."""
        fetched, followed.fetched = followed.fetched, None
        follower = followed.partition.follower
        if fetched is not None and follower is not None and followed.partition.log is not None:
            follower.follow_leader(fetched.high_watermark, fetched.log_start_offset)

    def _take_error(self, followed: FollowedPartition, code: int) -> None:
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._restart(followed)
        elif code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            self._rebuild(followed)
        else:
            self._rest(followed)

    def _rebuild(self, followed: FollowedPartition) -> None:
        """Begin with the leader's local segments: what comes next here is in the remote tier."""
        self._set_aside(followed)

        def done(is_rebuilt: bool) -> None:
            if is_rebuilt:
                self._wake(followed)
            else:
                now_ms = self._host.clock.monotonic_ms()
                self._host.timers.at(now_ms + REBUILD_PAUSE_MS, lambda: self._wake(followed))

        self._host.rebuild_from_tier(self._peer, followed.partition, done)

    def _restart(self, followed: FollowedPartition) -> None:
        """Begin again where the leader's log begins: it has removed what comes next here."""
        partition = followed.partition
        self._set_aside(followed)
        epoch = partition.leader_epoch

        def found(offset: int | None) -> None:
            follower = partition.follower
            is_same = partition.leader_epoch == epoch and not partition.removed
            if (
                offset is not None
                and follower is not None
                and is_same
                and partition.log is not None
            ):
                follower.restart_at(offset)
            self._wake(followed)

        self._host.find_log_start(self._peer, partition, found)

    def _rest(self, followed: FollowedPartition, pause_ms: float = PAUSE_MS) -> None:
        """Leave a partition alone for a while."""
        if not followed.is_resting:
            self._set_aside(followed)
            now_ms = self._host.clock.monotonic_ms()
            self._host.timers.at(now_ms + pause_ms, lambda: self._wake(followed))

    def _set_aside(self, followed: FollowedPartition) -> None:
        """Take a partition out of the session, so that the leader does not send it again."""
        followed.is_resting = True
        key = followed.partition.topic.topic_id, followed.partition.index
        if self._partitions.get(key) is followed:
            self._changed.pop(key, None)
            self._forgotten[key] = None

    def _wake(self, followed: FollowedPartition) -> None:
        followed.is_resting = False
        partition = followed.partition
        key = partition.topic.topic_id, partition.index
        if self._partitions.get(key) is followed:
            self._forgotten.pop(key, None)
            self._changed[key] = None
            self._fetch_soon()

    def _start_over(self) -> None:
        """Begin a new session with the next request."""
        self._session = (0, INITIAL_EPOCH)

    def _pause(self) -> None:
        self._is_paused = True
        now_ms = self._host.clock.monotonic_ms()
        self._host.timers.at(now_ms + PAUSE_MS, self._resume)

    def _resume(self) -> None:
        self._is_paused = False
        self._fetch_soon()
