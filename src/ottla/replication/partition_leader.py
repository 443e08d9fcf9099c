"""The leader of a partition: appends, the ends of its followers, ISR and high watermark.

An append is *written* when the local log has it, and *committed* when every replica of the ISR
has it: then the high watermark passes it. Requests wait for one or the other (acks=1 or acks=all)
in this object, and nowhere else.

Invariants:
    the high watermark never goes back while this broker leads, and never passes the end that
    a member of the ISR has
    a waiter is told the result of its append exactly once
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from errno import EIO
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ottla.metadata.image import PartitionImage
from ottla.model.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from ottla.replication.partition import Partition

WRITTEN = -1
"""The offset of a waiter that waits for the local write only."""

MAX_OFFSET = 2**63 - 1


class AppendWaiter(Protocol):
    """Waits for an append, and is told its result once.

    `place` and `position` are the waiter's own. It gets them back unchanged.
    """

    def appended(self, place: Any, position: int, error: ApiError | None) -> None:
        """Take the result: no error if the append is written or committed, as asked for."""
        ...

    def wait_for_followers(self, place: Any, position: int) -> None:
        """Take note that the append is written here and waits for followers now."""
        ...


Waiting: TypeAlias = tuple[int, AppendWaiter, Any, int]
"""(offset the high watermark must reach, or WRITTEN; waiter; place; position)."""


class _OwnAppend:
    """Waits for a batch that the broker itself appended."""

    __slots__ = ("_done",)

    def __init__(self, done: Callable[[ErrorCode], None]) -> None:
        self._done = done

    def appended(self, place: Any, position: int, error: ApiError | None) -> None:
        """Pass the result on."""
        self._done(ErrorCode.NONE if error is None else error.code)

    def wait_for_followers(self, place: Any, position: int) -> None:
        """Wait as long as it takes."""


class FollowerState:
    """What the leader knows about one follower from its fetches."""

    __slots__ = ("caught_up_ms", "log_end_offset")

    def __init__(self) -> None:
        self.log_end_offset = -1
        """The offset it asked for last; -1 until it has fetched in this leader epoch."""
        self.caught_up_ms = -1.0
        """When it last had everything that the leader had."""


class PartitionLeader:
    """The role of the replica that clients write to."""

    __slots__ = (
        "_broker_id",
        "_uncommitted",
        "followers",
        "isr",
        "partition",
        "replica_count",
        "unwritten",
    )

    def __init__(self, partition: Partition, broker_id: int) -> None:
        self.partition = partition
        self._broker_id = broker_id
        self.isr: tuple[int, ...] = ()
        self.replica_count = 0
        self.followers: dict[int, FollowerState] = {}
        self.unwritten: list[Waiting] = []
        """Those whose appends are queued in the log and not written yet."""
        self._uncommitted: deque[Waiting] = deque()
        """Those whose appends are written and wait for the high watermark, in order of offset."""

    # -- the role ------------------------------------------------------------------------

    def lead(self, image: PartitionImage) -> None:
        """Follow the image: the replicas, the ISR, and a leader epoch that may be new."""
        others = [replica for replica in image.replicas if replica != self._broker_id]
        known = self.followers
        self.followers = {replica: known.get(replica) or FollowerState() for replica in others}
        self.replica_count = len(image.replicas)
        self.isr = image.isr
        if self.partition.log is not None:
            self.advance_high_watermark()

    def resign(self) -> None:
        """Stop leading: requests that wait for followers get NOT_LEADER_OR_FOLLOWER.

        What is queued in the log is still written when the wake-up ends.
        """
        error = self.partition.not_leader()
        uncommitted, self._uncommitted = self._uncommitted, deque()
        for _, waiter, place, position in uncommitted:
            waiter.appended(place, position, error)

    # -- writing -------------------------------------------------------------------------

    def check_in_sync(self) -> None:
        """Raise NOT_ENOUGH_REPLICAS while the ISR is too small for acks=all."""
        required = self._required_in_sync()
        if len(self.isr) < required:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.isr)} in-sync replica, min.insync.replicas is {required}",
            )

    def _required_in_sync(self) -> int:
        """Return min.insync.replicas, but never more than there are replicas."""
        config = self.partition.online_log().config
        return min(config.min_insync_replicas, self.replica_count)

    def append_own(self, batch: bytearray, now_ms: int, done: Callable[[ErrorCode], None]) -> int:
        """Append a batch of the broker's own and return its base offset.

        `done` is called with NONE when the batch is committed, or with an error. Raise ApiError
        or OSError if the batch cannot be queued.
        """
        log = self.partition.online_log()
        base_offset = log.append_as_leader(
            batch, memoryview(batch), 0, len(batch), self.partition.leader_epoch, now_ms,
            is_own=True,
        )  # fmt: skip
        self.unwritten.append((log.log_end_offset, _OwnAppend(done), None, 0))
        return base_offset

    def write(self) -> None:
        """Write what was appended, advance the high watermark, and tell the waiters.

        Raise OSError if the log cannot be written. The log has then undone what was queued, and
        the caller tells the waiters with `refuse_unwritten`.
        """
        log = self.partition.log
        if log is None:  # its directory was lost since the append
            raise OSError(EIO, "the log directory is offline")
        log.write_queued()
        self.advance_high_watermark()
        # An append to a topic that was deleted meanwhile counts as committed.
        high_watermark = MAX_OFFSET if self.partition.removed else log.high_watermark
        unwritten, self.unwritten = self.unwritten, []
        for waiting in unwritten:
            offset, waiter, place, position = waiting
            if offset <= high_watermark:
                waiter.appended(place, position, None)
            else:
                self._uncommitted.append(waiting)
                waiter.wait_for_followers(place, position)

    def refuse_unwritten(self, code: ErrorCode, message: str) -> None:
        """Tell the waiters whose appends could not be written."""
        unwritten, self.unwritten = self.unwritten, []
        error = ApiError(code, message)
        for _, waiter, place, position in unwritten:
            waiter.appended(place, position, error)

    # -- replication ---------------------------------------------------------------------

    def record_fetch(self, replica_id: int, fetch_offset: int, now_ms: float) -> None:
        """Note that a follower has everything below `fetch_offset`; it asks for what follows.

        Raise NOT_LEADER_OR_FOLLOWER if that broker has no replica of this partition.
        """
        follower = self.followers.get(replica_id)
        log = self.partition.online_log()
        if follower is None:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica_id} has no replica of {self.partition.name}",
            )
        if fetch_offset >= log.written_end:
            follower.caught_up_ms = now_ms
        if fetch_offset != follower.log_end_offset:
            follower.log_end_offset = fetch_offset
            if replica_id in self.isr:
                self.advance_high_watermark()
                self._tell_committed()

    def advance_high_watermark(self) -> None:
        """Move the high watermark to the smallest end of the ISR, never back; tell watchers."""
        partition = self.partition
        log = partition.log
        assert log is not None
        end = log.written_end
        if len(self.isr) > 1:
            for replica_id in self.isr:
                follower = self.followers.get(replica_id)
                if follower is not None and follower.log_end_offset < end:
                    end = follower.log_end_offset
        if end > log.high_watermark:
            log.high_watermark = end
            if partition.watchers:
                partition.notify()

    def _tell_committed(self) -> None:
        """Tell the waiters whose appends the high watermark has passed."""
        log = self.partition.online_log()
        uncommitted = self._uncommitted
        error: ApiError | None = None
        if uncommitted and len(self.isr) < self._required_in_sync():
            error = ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                f"the ISR shrank to {len(self.isr)} after the append",
            )
        while uncommitted and uncommitted[0][0] <= log.high_watermark:
            _, waiter, place, position = uncommitted.popleft()
            waiter.appended(place, position, error)
