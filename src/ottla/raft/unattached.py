"""Unattached: the leader of this epoch is unknown, or (for an observer) does not answer.

The node asks other nodes for the leader by Fetch requests. A voter loses patience after
the election timeout and becomes prospective; an observer never does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.raft.role import NEVER, Role, grants_vote_without_leader

if TYPE_CHECKING:
    from ottla.raft.messages import VoteRequest
    from ottla.raft.quorum_state import QuorumState


class Unattached(Role):
    __slots__ = ("is_giving_way",)
    name = "unattached"

    def __init__(
        self, quorum: QuorumState, election_deadline_ms: float, *, is_giving_way: bool = False
    ) -> None:
        super().__init__(quorum)
        self.election_deadline_ms = election_deadline_ms
        self.is_giving_way = is_giving_way
        """True if another voter is to be elected in the next epoch, and this one waits for it."""

    def poll(self) -> float:
        quorum = self.quorum
        if quorum.is_shutting_down or quorum.is_log_writing:
            return NEVER
        if not quorum.can_stand:
            return quorum.fetch_from_any()
        if self.election_deadline_ms == NEVER:
            self.election_deadline_ms = quorum.patience_end_ms()
        if quorum.now_ms >= self.election_deadline_ms:
            quorum.become_prospective()
            return NEVER
        return min(quorum.fetch_from_any(), self.election_deadline_ms)

    def grants_vote(self, request: VoteRequest, is_log_up_to_date: bool) -> bool:
        return grants_vote_without_leader(self.quorum, request, is_log_up_to_date)
