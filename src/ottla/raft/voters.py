"""Replicas of the metadata log, and the set of them that vote (KIP-853).

A voter is named by its id and the id of its log directory, so that a node that comes back
with an empty disk is another voter. Voters from a static configuration
(`controller.quorum.voters`) have no directory id, and any directory id matches them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.model.ids import uuid_to_text

MAX_KRAFT_VERSION = 1  # voters can change while the quorum runs (KIP-853)


class ReplicaKey(NamedTuple):
    """A replica: the node's id, and the id of its log directory where that is known."""

    id: int
    directory_id: bytes | None = None

    def matches(self, other: ReplicaKey) -> bool:
        """Return True if `other` is this replica. A missing directory id here matches any."""
        return self.id == other.id and self.directory_id in (None, other.directory_id)

    def __str__(self) -> str:
        directory = f"-{uuid_to_text(self.directory_id)}" if self.directory_id else ""
        return f"{self.id}{directory}"


class Endpoint(NamedTuple):
    """Where a node listens."""

    listener: str
    host: str
    port: int


class Voter(NamedTuple):
    """A member of the voter set: its key, where it listens, the kraft.versions it supports."""

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    min_kraft_version: int = 0
    max_kraft_version: int = MAX_KRAFT_VERSION


class VoterSet:
    """An immutable set of voters with different ids."""

    __slots__ = ("_by_id",)

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self._by_id = {voter.key.id: voter for voter in sorted(voters)}

    def __len__(self) -> int:
        return len(self._by_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._by_id == other._by_id

    def __hash__(self) -> int:
        return hash(self.voters)

    def __repr__(self) -> str:
        return f"VoterSet({', '.join(str(key) for key in self.keys)})"

    @property
    def voters(self) -> tuple[Voter, ...]:
        """The voters, by ascending id."""
        return tuple(self._by_id.values())

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self._by_id)

    @property
    def keys(self) -> tuple[ReplicaKey, ...]:
        return tuple(voter.key for voter in self._by_id.values())

    def get(self, replica_id: int) -> Voter | None:
        return self._by_id.get(replica_id)

    def endpoints(self, replica_id: int) -> tuple[Endpoint, ...]:
        """Return where the voter with this id listens, nothing for an unknown id."""
        voter = self._by_id.get(replica_id)
        return voter.endpoints if voter else ()

    def is_voter(self, key: ReplicaKey) -> bool:
        voter = self._by_id.get(key.id)
        return voter is not None and voter.key.matches(key)

    def is_only_voter(self, key: ReplicaKey) -> bool:
        return len(self._by_id) == 1 and self.is_voter(key)

    def add(self, voter: Voter) -> VoterSet | None:
        """Return the set with one more voter, None if its id is taken."""
        if voter.key.id in self._by_id:
            return None
        return VoterSet((*self.voters, voter))

    def remove(self, key: ReplicaKey) -> VoterSet | None:
        """Return the set without this voter, None if it is not there or the last one."""
        voter = self._by_id.get(key.id)
        if voter is None or voter.key != key or len(self) == 1:
            return None
        return VoterSet(other for other in self.voters if other is not voter)

    def update(self, voter: Voter) -> VoterSet | None:
        """Return the set with this voter's entry replaced, None if it is not there."""
        if not self.is_voter(voter.key):
            return None
        return VoterSet((*(o for o in self.voters if o.key.id != voter.key.id), voter))

    def needs_update(self, voter: Voter) -> bool:
        """Return True if this voter is in the set with other endpoints or versions."""
        return self.is_voter(voter.key) and self._by_id[voter.key.id] != voter
