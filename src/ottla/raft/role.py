"""What all roles of a quorum member have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ottla.raft.effects import RoleName

if TYPE_CHECKING:
    from ottla.raft.messages import VoteRequest
    from ottla.raft.quorum_state import QuorumState

NEVER = float("inf")
GIVE_WAY_MS = 250
"""How long a voter waits for one whose pre-vote it has granted, before it stands itself."""


class Role:
    """A role. It lasts until `QuorumState` makes a transition."""

    __slots__ = ("election_deadline_ms", "quorum")
    name: ClassVar[RoleName]

    def __init__(self, quorum: QuorumState) -> None:
        self.quorum = quorum
        self.election_deadline_ms = NEVER
        """When the patience for an election ends. The next role may take it over."""

    def poll(self) -> float:
        """Do what is due now; return when something will be due next.

        It may make a transition. Then the new role is polled.
        """
        raise NotImplementedError

    def grants_vote(self, request: VoteRequest, is_log_up_to_date: bool) -> bool:
        """Decide about a vote in the current epoch, which is the epoch of the request."""
        raise NotImplementedError

    def pre_vote_granted(self, request: VoteRequest) -> None:
        """Take note that another node was told that it would get the vote."""

    def log_flushed(self) -> None:
        """Take note that more of the log is durable."""

    def end(self) -> None:
        """Settle what others still expect of this role. The next role is in place already."""

    def epoch_start_offset(self) -> int | None:
        """Return where the leader's epoch starts, None for other roles."""
        return None


def grants_vote_without_leader(
    quorum: QuorumState, request: VoteRequest, is_log_up_to_date: bool
) -> bool:
    """Decide as unattached or prospective: a pre-vote by the log alone, one vote an epoch.

    Kafka grants the second request of the same candidate without a look at its log. Here a
    candidate is refused that lost the unflushed end of its log in a crash.
    """
    if request.pre_vote or not is_log_up_to_date:
        return is_log_up_to_date
    if quorum.election.voted is not None:
        return quorum.election.voted.matches(request.candidate)
    return quorum.election.leader_id is None
