"""The election state that a node keeps on disk, and the count of votes."""

from __future__ import annotations

from typing import NamedTuple

from ottla.raft.voters import ReplicaKey, VoterSet


class ElectionState(NamedTuple):
    """What `quorum-state` holds: the epoch, its leader if known, and the vote given in it."""

    epoch: int = 0
    leader_id: int | None = None
    voted: ReplicaKey | None = None


class Votes:
    """The answers to one round of (pre-)vote requests. A voter grants its own vote."""

    __slots__ = ("_answers", "voters")

    def __init__(self, voters: VoterSet, local: ReplicaKey) -> None:
        self.voters = voters
        self._answers = {local.id: True} if voters.is_voter(local) else {}

    def record(self, replica_id: int, granted: bool) -> None:
        """Record an answer. Answers of nodes outside the voter set do not count."""
        if self.voters.get(replica_id) is not None:
            self._answers[replica_id] = granted

    @property
    def granting(self) -> tuple[int, ...]:
        return tuple(sorted(i for i, granted in self._answers.items() if granted))

    @property
    def unanswered(self) -> tuple[ReplicaKey, ...]:
        return tuple(key for key in self.voters.keys if key.id not in self._answers)

    @property
    def is_won(self) -> bool:
        return len(self.granting) >= self._majority

    @property
    def is_lost(self) -> bool:
        """True when the voters that can still answer do not suffice."""
        return len(self.granting) + len(self.unanswered) < self._majority

    @property
    def _majority(self) -> int:
        return len(self.voters) // 2 + 1
