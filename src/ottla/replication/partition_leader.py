"""The leader of a partition: appends, the ends of its followers, ISR and high watermark.

An append is *written* when the local log has it, and *committed* when every replica of the ISR
has it: then the high watermark passes it. Requests wait for one or the other (acks=1 or acks=all)
in this object, and nowhere else.

Invariants:
    the leader is in the ISR, and the ISR is part of the replicas
    the high watermark never goes back while this broker leads, and never moves past the end
    that a member of the ISR has, nor while the ISR is smaller than min.insync.replicas
    a follower's end is never past the leader's: it is one that the leader's log has
    a waiter is told exactly once: that its append holds, or why it does not
    a leader that has resigned moves no high watermark
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from errno import EIO
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from ottla.log.append_rules import WITH_KEYS
from ottla.metadata.image import PartitionImage
from ottla.model.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.replication.delayed_appends import DelayedAppends
    from ottla.replication.partition import Partition

_NONE: Final = ErrorCode.NONE  # a member of an enumeration is looked up slowly

WRITTEN: Final = -1
"""The offset of a waiter that waits for the local write only."""

MAX_OFFSET: Final = 2**63 - 1
NOBODY: Final = -1


class AppendWaiter(Protocol):
    """Waits for an append, and is told its result once.

    `place` and `position` are the waiter's own. It gets them back unchanged.
    """

    def accepted(
        self, place: Any, position: int, base_offset: int, append_time: int, log_start_offset: int
    ) -> None:
        """Take the offset of a delayed append that is queued now. Its result comes later."""
        ...

    def appended(self, place: Any, position: int, error: ApiError | None) -> None:
        """Take the result: no error if the append is written or committed, as asked for."""
        ...

    def wait_for_followers(self, place: Any, position: int) -> None:
        """Take note that the append is written here and waits for followers now."""
        ...


Waiting: TypeAlias = tuple[int, AppendWaiter, Any, int]
"""(offset the high watermark must reach, or WRITTEN; waiter; place; position)."""


class OwnAppend:
    """Waits for a batch that the broker itself appended."""

    __slots__ = ("_done",)

    def __init__(self, done: Callable[[ErrorCode], None]) -> None:
        self._done = done

    def accepted(
        self, place: Any, position: int, base_offset: int, append_time: int, log_start_offset: int
    ) -> None:
        """Wait for the rest: the broker does not ask for offsets of its own batches."""

    def appended(self, place: Any, position: int, error: ApiError | None) -> None:
        """Pass the result on."""
        done = self._done
        done(_NONE if error is None else error.code)

    def wait_for_followers(self, place: Any, position: int) -> None:
        """Wait as long as it takes."""


class FollowerState:
    """What the leader knows about one follower from its fetches."""

    __slots__ = (
        "asked_end",
        "asked_ms",
        "behind_since_ms",
        "broker_epoch",
        "caught_up_ms",
        "keeps_up",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self) -> None:
        self.log_end_offset = -1
        """The offset it asked for last; -1 until it has fetched in this leader epoch."""
        self.log_start_offset = 0
        """Where its log begins."""
        self.caught_up_ms = -1.0
        """When it last had everything that the leader had.

        A fetch from the offset where the leader's log ended at the fetch before counts as well,
        for that time. So a follower keeps up although more is written all the time.
        """
        self.asked_ms = -1.0
        """When it fetched last."""
        self.asked_end = MAX_OFFSET
        """Where the leader's log ended then."""
        self.keeps_up = False
        """True if it is not in the ISR, and has what was there at the fetch before its last one."""
        self.behind_since_ms = -1.0
        """When something was written that it did not have, after it had everything."""
        self.broker_epoch = -1
        """The epoch of the broker that fetched, -1 if it did not say (KIP-903)."""


class PartitionLeader:
    """The role of the replica that clients write to."""

    __slots__ = (
        "_broker_id",
        "_leader_epoch",
        "_uncommitted",
        "awaited",
        "delayed",
        "followers",
        "isr",
        "partition",
        "proposed_isr",
        "replica_count",
        "start_offset",
        "unwritten",
    )

    def __init__(self, partition: Partition, broker_id: int) -> None:
        self.partition = partition
        self._broker_id = broker_id
        self._leader_epoch = -1
        self.start_offset = 0
        """Where the log ended when this leader epoch began."""
        self.isr: tuple[int, ...] = ()
        self.proposed_isr: tuple[int, ...] | None = None
        """The ISR that the controller was asked for and has not told yet."""
        self.awaited = NOBODY
        """A replica that will be in sync with its next fetch. Nothing is committed before that."""
        self.replica_count = 0
        self.followers: dict[int, FollowerState] = {}
        self.delayed: DelayedAppends | None = None
        """Appends that wait for a helper process. While there are some, all others wait too."""
        self.unwritten: list[Waiting] = []
        """Those whose appends are queued in the log and not written yet."""
        self._uncommitted: deque[Waiting] = deque()
        """Those whose appends are written and wait for the high watermark, in order of offset."""

    # -- the role ------------------------------------------------------------------------

    def lead(self, image: PartitionImage) -> None:
        """Follow the image: the replicas, the ISR, and a leader epoch that may be new."""
        assert self._broker_id in image.isr, f"{self.partition.name}: the leader is not in the ISR"
        assert set(image.isr) <= set(image.replicas), f"{self.partition.name}: {image.isr}"
        others = [replica for replica in image.replicas if replica != self._broker_id]
        known = self.followers if image.leader_epoch == self._leader_epoch else {}
        if image.leader_epoch != self._leader_epoch and self.partition.log is not None:
            self.start_offset = self.partition.log.log_end_offset
        self.proposed_isr = None
        self.awaited = NOBODY
        self.followers = {replica: known.get(replica) or FollowerState() for replica in others}
        self._leader_epoch = image.leader_epoch
        self.replica_count = len(image.replicas)
        self.isr = image.isr
        if others:
            self._check_followers_later()
        if self.partition.log is not None:
            self.advance_high_watermark()
            self._tell_committed()

    def resign(self) -> None:
        """Stop leading: requests that wait for followers get NOT_LEADER_OR_FOLLOWER.

        What is queued in the log is still written when the wake-up ends. Requests that wait for
        followers to have it are told then that another broker leads. Appends that are delayed
        are refused.
        """
        error = self.partition.not_leader()
        if self.delayed is not None:
            if self.partition.removed:
                self.delayed.refuse_all(ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            else:
                self.delayed.refuse_all(error)
        self._refuse_uncommitted(error)

    def refuse_uncommitted(self) -> None:
        """Tell requests that wait for followers that another broker probably leads."""
        self._refuse_uncommitted(
            ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"followers of {self.partition.name} and the controller do not answer",
            )
        )

    def _refuse_uncommitted(self, error: ApiError) -> None:
        uncommitted, self._uncommitted = self._uncommitted, deque()
        for _, waiter, place, position in uncommitted:
            waiter.appended(place, position, error)

    @property
    def has_uncommitted(self) -> bool:
        """True if requests wait for followers."""
        return bool(self._uncommitted)

    @property
    def is_leading(self) -> bool:
        """True until this broker stops leading the partition."""
        return self.partition.leader is self and not self.partition.removed

    @property
    def is_awaiting_followers(self) -> bool:
        """True if some in-sync follower has not fetched yet in this leader epoch."""
        return any(
            follower.log_end_offset < 0 and replica_id in self.isr
            for replica_id, follower in self.followers.items()
        )

    @property
    def is_under_replicated(self) -> bool:
        """True if some replica is not in the ISR."""
        return len(self.isr) < self.replica_count

    # -- writing -------------------------------------------------------------------------

    def check_in_sync(self) -> None:
        """Raise NOT_ENOUGH_REPLICAS while the ISR is too small for acks=all."""
        log = self.partition.online_log()
        if not self._has_enough_in_sync(log):
            required = min(log.config.min_insync_replicas, self.replica_count)
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.isr)} in-sync replica, min.insync.replicas is {required}",
            )

    def _has_enough_in_sync(self, log: Log) -> bool:
        """Return True if min.insync.replicas are in sync. More than there are is not required."""
        in_sync = len(self.isr)
        return in_sync >= log.config.min_insync_replicas or in_sync >= self.replica_count

    def append_own(self, batch: bytearray, now_ms: int, done: Callable[[ErrorCode], None]) -> int:
        """Append a batch of the broker's own and return its base offset.

        Raise ApiError or OSError if it cannot be queued, AppendLater if it must wait.
        """
        log = self.partition.online_log()
        self.check_in_sync()
        base_offset = log.append_as_leader(
            batch, memoryview(batch), 0, len(batch), self.partition.leader_epoch, now_ms,
            checked=WITH_KEYS,
        )  # fmt: skip
        self.unwritten.append((log.log_end_offset, OwnAppend(done), None, 0))
        return base_offset

    def write(self) -> None:
        """Write what was appended, advance the high watermark, and tell the waiters.

        Raise OSError if the log cannot be written. The log has then undone what was queued, and
        the caller tells the waiters with `refuse_unwritten`.
        """
        partition = self.partition
        log = partition.log
        if log is None:  # its directory was lost since the append
            raise OSError(EIO, "the log directory is offline")
        if self.followers:
            self._note_behind(log)
        if partition.watchers:
            log.write_queued(is_awaited=True)
        else:
            log.write_queued()
        if partition.leader is not self:
            self._tell_resigned()
            return
        if self.replica_count == 1:
            self._commit_alone(log)
            return
        self.advance_high_watermark()
        if self.followers and self.partition.watchers:
            self.partition.notify_followers()
        high_watermark = log.high_watermark
        has_shrunk = not self._has_enough_in_sync(log)
        if self.partition.removed:
            high_watermark = MAX_OFFSET  # the topic is deleted: that is as good as written
        elif has_shrunk:
            high_watermark = WRITTEN
        unwritten, self.unwritten = self.unwritten, []
        for waiting in unwritten:
            offset, waiter, place, position = waiting
            if offset <= high_watermark:
                waiter.appended(place, position, None)
            else:
                self._uncommitted.append(waiting)
                waiter.wait_for_followers(place, position)
        if has_shrunk:
            self._tell_committed()

    def _commit_alone(self, log: Log) -> None:
        """Commit what is written, and tell the waiters: there is no other replica."""
        partition = self.partition
        end = log.written_end
        if end > log.high_watermark:
            log.high_watermark = end
            if partition.watchers:
                partition.notify()
        unwritten, self.unwritten = self.unwritten, []
        for _, waiter, place, position in unwritten:
            waiter.appended(place, position, None)

    def _tell_resigned(self) -> None:
        """Tell those whose appends were written after this broker stopped leading."""
        error = self.partition.not_leader()
        unwritten, self.unwritten = self.unwritten, []
        for offset, waiter, place, position in unwritten:
            waiter.appended(place, position, None if offset == WRITTEN else error)

    def refuse_unwritten(self, code: ErrorCode, message: str) -> None:
        """Tell the waiters whose appends could not be written."""
        unwritten, self.unwritten = self.unwritten, []
        error = ApiError(code, message)
        for _, waiter, place, position in unwritten:
            waiter.appended(place, position, error)

    # -- replication ---------------------------------------------------------------------

    def record_fetch(
        self,
        replica_id: int,
        fetch_offset: int,
        now_ms: float,
        broker_epoch: int = -1,
        log_start_offset: int = 0,
    ) -> None:
        """Note that a follower has everything below `fetch_offset`; it asks for what follows.

        Raise NOT_LEADER_OR_FOLLOWER when the broker has no replica of this partition,
        OFFSET_OUT_OF_RANGE when it asks for what comes after the end of this log: what it has
        there is not this leader's.
        """
        follower = self.followers.get(replica_id)
        log = self.partition.log
        if log is None:
            log = self.partition.online_log()  # raises
        if follower is None:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica_id} has no replica of {self.partition.name}",
            )
        if fetch_offset > log.written_end:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"broker {replica_id} asks for offset {fetch_offset} of {self.partition.name},"
                f" which ends at {log.written_end}",
            )
        if fetch_offset == log.written_end:
            follower.caught_up_ms = now_ms
        elif fetch_offset >= follower.asked_end:
            follower.caught_up_ms = max(follower.caught_up_ms, follower.asked_ms)
        is_in_sync = replica_id in self.isr
        if not is_in_sync:
            follower.keeps_up = fetch_offset >= min(follower.asked_end, log.written_end)
        follower.asked_ms, follower.asked_end = now_ms, log.written_end
        follower.broker_epoch = broker_epoch
        follower.log_start_offset = log_start_offset
        if fetch_offset != follower.log_end_offset:
            follower.log_end_offset = fetch_offset
            if is_in_sync or self._is_proposed(replica_id):
                self.advance_high_watermark()
                if self._uncommitted:
                    self._tell_committed()
        if not is_in_sync and self.partition.topic.isr_changes is not None:
            self.partition.topic.isr_changes.fetched(self, replica_id)

    def wait_for(self, replica_id: int) -> None:
        """Commit nothing until a replica has fetched once more, so that it can join the ISR.

        Otherwise a replica could never join a leader that is alone in the ISR and commits all the
        time: with each of its fetches, more would be committed than it has.
        """
        self.awaited = replica_id

    def stop_waiting(self) -> None:
        """Commit without the replica that was waited for."""
        self.awaited = NOBODY
        self._commit_more()

    def settings_changed(self) -> None:
        """Commit what waited for a larger ISR, if min.insync.replicas is smaller now."""
        if self.replica_count > 1:
            self._commit_more()

    def _commit_more(self) -> None:
        if self.is_leading and self.partition.log is not None:
            self.advance_high_watermark()
            self._tell_committed()

    def withdraw_proposal(self) -> None:
        """Give up a proposed ISR that the controller refused; nobody waits for it any more."""
        self.proposed_isr = None
        self._commit_more()

    def _is_proposed(self, replica_id: int) -> bool:
        return self.proposed_isr is not None and replica_id in self.proposed_isr

    def has_caught_up(self, follower: FollowerState) -> bool:
        """Return True if a follower may join the ISR: it has all that is or will be committed.

        While the ISR is too small, nothing is committed that is written. So the follower must
        keep up with what is written, or it would have to leave the ISR soon.
        """
        log = self.partition.online_log()
        end = follower.log_end_offset
        if end < max(log.high_watermark, self.start_offset):
            return False
        return end >= log.written_end or follower.keeps_up or self._has_enough_in_sync(log)

    @property
    def has_no_follower_behind(self) -> bool:
        """True if all in-sync followers have everything that is written."""
        log = self.partition.log
        return log is not None and all(
            follower.log_end_offset >= log.written_end
            for replica_id, follower in self.followers.items()
            if replica_id in self.isr
        )

    def _check_followers_later(self) -> None:
        """Have the next check for followers that lag look at this partition."""
        changes = self.partition.topic.isr_changes
        if changes is not None:
            changes.to_check[self] = None

    def lagging(self, now_ms: float, lag_max_ms: float) -> list[int]:
        """Return the in-sync followers that have not caught up for too long."""
        log = self.partition.log
        found: list[int] = []
        for replica_id, follower in self.followers.items():
            if log is None or replica_id not in self.isr:
                continue
            if follower.log_end_offset >= log.written_end:
                continue
            since_ms = max(follower.caught_up_ms, follower.behind_since_ms)
            if since_ms < 0:  # it has not fetched yet: its time begins now
                follower.behind_since_ms = now_ms
            elif now_ms - since_ms > lag_max_ms:
                found.append(replica_id)
        return found

    def _note_behind(self, log: Log) -> None:
        """Note that followers which have everything had it until this write."""
        self._check_followers_later()
        now_ms = log.resources.clock.monotonic_ms()
        for follower in self.followers.values():
            if follower.log_end_offset >= log.written_end:
                follower.behind_since_ms = now_ms

    def advance_high_watermark(self) -> None:
        """Move the high watermark to the smallest end of the ISR, never back; tell watchers.

        It stays while fewer than min.insync.replicas are in sync. What is written then is not
        committed: an eligible leader that left the ISR before does not have it (KIP-966).
        """
        partition = self.partition
        log = partition.log
        assert log is not None
        if len(self.isr) < self.replica_count and (
            self.awaited != NOBODY or not self._has_enough_in_sync(log)
        ):
            return
        end = log.written_end
        counted = self.isr if self.proposed_isr is None else (*self.isr, *self.proposed_isr)
        if len(counted) > 1:
            followers = self.followers
            for replica_id in counted:
                follower = followers.get(replica_id)
                if follower is not None and follower.log_end_offset < end:
                    end = follower.log_end_offset
        if end > log.high_watermark:
            log.high_watermark = end
            if partition.watchers:
                partition.notify()

    def _tell_committed(self) -> None:
        """Tell the waiters whose appends the high watermark has passed, or that it cannot pass."""
        uncommitted = self._uncommitted
        if not uncommitted:
            return
        log = self.partition.online_log()
        if not self._has_enough_in_sync(log):
            self._refuse_uncommitted(
                ApiError(
                    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                    f"the ISR shrank to {len(self.isr)} after the append",
                )
            )
            return
        high_watermark = log.high_watermark
        while uncommitted and uncommitted[0][0] <= high_watermark:
            _, waiter, place, position = uncommitted.popleft()
            waiter.appended(place, position, None)
