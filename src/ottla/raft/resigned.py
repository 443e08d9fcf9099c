"""Resigned: was the leader of this epoch and gave it up.

It tells the other voters, best successor first, and waits for one of them to be elected.
After an election timeout it goes on to the next epoch, as a voter like the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.raft.messages import EndQuorumEpochRequest
from ottla.raft.role import NEVER, Role

if TYPE_CHECKING:
    from ottla.raft.messages import VoteRequest
    from ottla.raft.quorum_state import QuorumState
    from ottla.raft.voters import ReplicaKey


class Resigned(Role):
    __slots__ = ("preferred_candidates", "untold")
    name = "resigned"

    def __init__(self, quorum: QuorumState, preferred_candidates: tuple[ReplicaKey, ...]) -> None:
        super().__init__(quorum)
        self.preferred_candidates = preferred_candidates
        self.untold = {i for i in quorum.voters.last.ids if i != quorum.local.key.id}
        self.election_deadline_ms = quorum.patience_end_ms()

    def grants_vote(self, request: VoteRequest, is_log_up_to_date: bool) -> bool:
        return request.pre_vote and is_log_up_to_date

    def acknowledge(self, voter_id: int) -> None:
        """Note that this voter knows."""
        self.untold.discard(voter_id)

    def poll(self) -> float:
        quorum = self.quorum
        deadline_ms = NEVER if quorum.is_shutting_down else self.election_deadline_ms
        if quorum.now_ms >= deadline_ms:
            self.election_deadline_ms = quorum.patience_end_ms()
            quorum.become_unattached(quorum.epoch + 1)
            return NEVER
        for voter_id in sorted(self.untold):
            request = EndQuorumEpochRequest(
                quorum.local.key.id,
                quorum.epoch,
                quorum.local.endpoints,
                self.preferred_candidates,
            )
            again_ms = quorum.send(quorum.voter_peer(voter_id), request)
            deadline_ms = min(deadline_ms, again_ms)
        return deadline_ms
