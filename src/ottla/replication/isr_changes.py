"""Changes of in-sync replicas, as the leaders on this broker ask the controller for them.

A follower that has reached the high watermark may join the ISR, one that lags for too long must
leave it. The leader proposes, the controller decides (AlterPartition), and the metadata says what
was decided. Until then the high watermark waits for the old ISR and the proposed one alike, so it
is right whichever of them counts. A follower that lacks only what was committed since its last
fetch is waited for (`PartitionLeader.awaited`): otherwise it could not join while very much is
written. Each partition has one proposal at a time; all that come in one wake-up are sent together,
and one request is in flight.

What becomes of a proposal follows from the answer:

    agreed, or the controller knows a newer state    it stands until the metadata has it
    refused                                          it is withdrawn, and considered again later
    no answer, or not from the active controller     it stands, and is sent again
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from ottla.model.errors import ErrorCode
from ottla.replication.partition_leader import NOBODY, PartitionLeader

RETRY_MS: Final = 100
LONGEST_WAIT_MS: Final = 500
"""How long a leader commits nothing, at most, so that a follower can join the ISR."""
_TOLD_BY_METADATA: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
_REFUSALS: Final = frozenset(
    {
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class IsrHost(Protocol):
    """What asks the controller, and knows the brokers."""

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Return True if a broker is active, and has not restarted since it had this epoch."""
        ...

    def propose(
        self, leaders: list[PartitionLeader], done: Callable[[dict[PartitionLeader, int]], None]
    ) -> None:
        """Send the proposals of these leaders; `done` gets the error code of each."""
        ...

    def at_wake_up_end(self, action: Callable[[], None]) -> None:
        """Call a function when the wake-up ends."""
        ...

    def later(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Call a function after a while."""
        ...


class IsrChanges:
    """The proposals of all leaders on this broker."""

    def __init__(self, host: IsrHost) -> None:
        self._host = host
        self._queued: dict[PartitionLeader, None] = {}
        self.to_check: dict[PartitionLeader, None] = {}
        """Leaders whose followers may lag: they wrote, or began to lead, since the last check.

        So a check costs what is written to, not what is led.
        """
        self._is_in_flight = False
        self._is_scheduled = False

    def fetched(self, leader: PartitionLeader, replica_id: int) -> None:
        """Take note that a follower outside of the ISR has fetched.

        If it has what was there at the fetch before, it lacks only what was committed since then.
        So the leader waits for its next fetch, in which it has all that is committed.
        """
        was_awaited = leader.awaited == replica_id
        self.consider(leader, replica_id)
        if leader.proposed_isr is not None:
            return
        follower = leader.followers[replica_id]
        if was_awaited:
            leader.stop_waiting()
        elif (
            follower.keeps_up
            and leader.awaited == NOBODY
            and not leader.has_caught_up(follower)
            and self._host.is_eligible(replica_id, follower.broker_epoch)
        ):
            leader.wait_for(replica_id)
            fetched_ms = follower.asked_ms
            self._host.later(
                LONGEST_WAIT_MS, lambda: self._stop_waiting(leader, replica_id, fetched_ms)
            )

    def _stop_waiting(self, leader: PartitionLeader, replica_id: int, fetched_ms: float) -> None:
        """Commit without a follower that has not fetched again."""
        follower = leader.followers.get(replica_id)
        if leader.awaited == replica_id and (follower is None or follower.asked_ms == fetched_ms):
            leader.stop_waiting()

    def consider(self, leader: PartitionLeader, replica_id: int) -> None:
        """Propose that a follower joins the ISR, if it has all that is committed."""
        if leader.proposed_isr is not None or replica_id in leader.isr:
            return
        follower = leader.followers[replica_id]
        if not self._host.is_eligible(replica_id, follower.broker_epoch):
            if leader.awaited == replica_id:
                leader.stop_waiting()
        elif leader.has_caught_up(follower):
            self._propose(leader, (*leader.isr, replica_id))

    def consider_all(self, leader: PartitionLeader) -> None:
        """Propose that followers join the ISR that could not do so before."""
        if leader.is_under_replicated and leader.partition.log is not None:
            for replica_id in leader.followers:
                self.consider(leader, replica_id)

    def remove_lagging(self, now_ms: float, lag_max_ms: float) -> None:
        """Propose that followers that lag for too long leave the ISR."""
        for leader in list(self.to_check):
            if not leader.is_leading or leader.has_no_follower_behind:
                del self.to_check[leader]
            elif leader.proposed_isr is None:
                lagging = leader.lagging(now_ms, lag_max_ms)
                if lagging:
                    kept = tuple(each for each in leader.isr if each not in lagging)
                    self._propose(leader, kept)

    def _propose(self, leader: PartitionLeader, isr: tuple[int, ...]) -> None:
        leader.proposed_isr = isr
        leader.awaited = NOBODY
        self._queued[leader] = None
        self._send_soon()

    def _send_soon(self) -> None:
        if not self._is_in_flight and not self._is_scheduled and self._queued:
            self._is_scheduled = True
            self._host.at_wake_up_end(self._send)

    def _send(self) -> None:
        self._is_scheduled = False
        leaders = [each for each in self._queued if each.is_leading and each.proposed_isr]
        self._queued.clear()
        if leaders:
            self._is_in_flight = True
            self._host.propose(leaders, self._answered)

    def _answered(self, codes: dict[PartitionLeader, int]) -> None:
        self._is_in_flight = False
        refused: list[PartitionLeader] = []
        unknown: list[PartitionLeader] = []
        for leader, code in codes.items():
            if code in _REFUSALS:
                refused.append(leader)
                leader.withdraw_proposal()
            elif code not in _TOLD_BY_METADATA:
                unknown.append(leader)
        if refused:
            self._host.later(RETRY_MS, lambda: self._consider_again(refused))
        if unknown:
            self._host.later(RETRY_MS, lambda: self._send_again(unknown))
        self._send_soon()

    def _consider_again(self, leaders: list[PartitionLeader]) -> None:
        """Propose again what was refused, if it still makes sense."""
        for leader in leaders:
            if leader.is_leading:
                self.consider_all(leader)

    def _send_again(self, leaders: list[PartitionLeader]) -> None:
        """Repeat proposals that the controller may or may not have agreed to."""
        self._queued.update(dict.fromkeys(leaders))
        self._send_soon()
