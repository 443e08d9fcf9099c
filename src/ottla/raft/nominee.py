"""What prospective and candidate have in common: they ask the other voters for votes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ottla.raft.election import Votes
from ottla.raft.role import NEVER, Role

if TYPE_CHECKING:
    from ottla.raft.quorum_state import QuorumState


class Nominee(Role):
    """A role that asks for votes until it has a majority, cannot get one, or time is over."""

    __slots__ = ("votes",)
    is_pre_vote: ClassVar[bool]

    def __init__(self, quorum: QuorumState) -> None:
        super().__init__(quorum)
        self.votes = Votes(quorum.voters.last, quorum.local.key)
        self.election_deadline_ms = (
            quorum.patience_end_ms() if self.is_pre_vote else quorum.election_deadline_ms()
        )

    def poll(self) -> float:
        quorum = self.quorum
        if self.votes.is_won:
            self.won()
            return NEVER
        if quorum.is_shutting_down:
            return self._ask_for_votes()
        if quorum.now_ms >= self.election_deadline_ms:
            self.timed_out()
            return NEVER
        return min(self._ask_for_votes(), self.election_deadline_ms)

    def record_vote(self, voter_id: int, granted: bool) -> None:
        """Count an answer."""
        self.votes.record(voter_id, granted)
        if self.votes.is_lost:
            self.lost()

    def won(self) -> None:
        raise NotImplementedError

    def lost(self) -> None:
        raise NotImplementedError

    def timed_out(self) -> None:
        raise NotImplementedError

    def _ask_for_votes(self) -> float:
        if self.votes.is_lost:
            return NEVER
        from ottla.raft.messages import VoteRequest

        quorum = self.quorum
        again_ms = NEVER
        for voter in self.votes.unanswered:
            request = VoteRequest(
                quorum.local.key,
                quorum.epoch,
                voter,
                quorum.log.end_offset,
                quorum.log.end_epoch,
                self.is_pre_vote,
            )
            again_ms = min(again_ms, quorum.send(quorum.voter_peer(voter.id), request))
        return again_ms
