"""Prospective: asks the voters whether they would elect it, and keeps its epoch (KIP-996).

A node that was cut off cannot disturb a leader that the others still follow: it does not
get their pre-votes, and its epoch stays.

Two prospective nodes grant each other's pre-votes, and would split the votes of the next epoch. So
one of them gives way: that with the shorter log, or with the greater id. It stands again if the
other one is not elected soon. Which votes are granted does not depend on this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.raft.nominee import Nominee
from ottla.raft.role import grants_vote_without_leader

if TYPE_CHECKING:
    from ottla.raft.messages import VoteRequest


class Prospective(Nominee):
    __slots__ = ()
    name = "prospective"
    is_pre_vote = True

    def won(self) -> None:
        self.quorum.become_candidate()

    def lost(self) -> None:
        self._give_up(self.quorum.patience_end_ms())

    def timed_out(self) -> None:
        self._give_up(self.election_deadline_ms)

    def _give_up(self, next_deadline_ms: float) -> None:
        """Follow the last known leader again, or wait for the next chance."""
        quorum = self.quorum
        leader_id = quorum.election.leader_id
        if leader_id is not None and leader_id != quorum.local.key.id and quorum.leader_endpoints:
            quorum.become_follower(quorum.epoch, leader_id, quorum.leader_endpoints)
        else:
            self.election_deadline_ms = next_deadline_ms
            quorum.become_unattached(quorum.epoch, leader_id)

    def pre_vote_granted(self, request: VoteRequest) -> None:
        """Give way to a node that stands as well, and is the better leader."""
        quorum, log = self.quorum, self.quorum.log
        local_id = quorum.local.key.id
        theirs = (request.last_epoch, request.last_offset, -request.candidate.id)
        if theirs > (log.end_epoch, log.end_offset, -local_id) and not quorum.is_shutting_down:
            quorum.give_way()

    def grants_vote(self, request: VoteRequest, is_log_up_to_date: bool) -> bool:
        return grants_vote_without_leader(self.quorum, request, is_log_up_to_date)
