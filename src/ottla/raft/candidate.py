"""Candidate: has voted for itself in a new epoch and asks the other voters for their votes.

A candidate that cannot win any more waits for the end of its election timeout, so that
the winner has time to announce itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.raft.nominee import Nominee

if TYPE_CHECKING:
    from ottla.raft.messages import VoteRequest


class Candidate(Nominee):
    __slots__ = ()
    name = "candidate"
    is_pre_vote = False

    def won(self) -> None:
        self.quorum.become_leader(self.votes.granting)

    def lost(self) -> None:
        """Wait for the end of the timeout; `timed_out` follows."""

    def timed_out(self) -> None:
        self.quorum.become_prospective()

    def grants_vote(self, request: VoteRequest, is_log_up_to_date: bool) -> bool:
        return request.pre_vote and is_log_up_to_date
