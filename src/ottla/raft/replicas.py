"""How far each replica has fetched, as the leader knows it."""

from __future__ import annotations

from ottla.raft.voters import ReplicaKey, VoterSet

OBSERVER_SESSION_TIMEOUT_MS = 300_000
"""An observer that has not fetched for this long is forgotten."""
MOST_OBSERVERS = 1000
"""Whoever can reach a controller can fetch as any number of observers."""
CAUGHT_UP_MS = 3_600_000
"""A replica that fetched within this time, and was at the log's end once, may become a voter."""


class Replica:
    """What the leader knows about one replica. Times are None before the first Fetch."""

    __slots__ = (
        "end_offset",
        "has_acknowledged",
        "heard_key",
        "key",
        "last_caught_up_ms",
        "last_fetch_leader_end",
        "last_fetch_ms",
    )

    def __init__(self, key: ReplicaKey) -> None:
        self.key = key
        self.heard_key: ReplicaKey | None = None
        """The key with which it fetched. Static voters have no directory id in their own."""
        self.end_offset: int | None = None
        self.last_fetch_ms: float | None = None
        self.last_caught_up_ms: float | None = None
        self.last_fetch_leader_end: int | None = None
        self.has_acknowledged = False

    def fetched(self, end_offset: int, leader_end_offset: int, now_ms: float) -> None:
        """Note a Fetch. The replica's log is durable up to `end_offset`."""
        if end_offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif self.last_fetch_leader_end is not None and end_offset >= self.last_fetch_leader_end:
            self.last_caught_up_ms = self.last_fetch_ms
        self.last_fetch_leader_end = leader_end_offset
        self.last_fetch_ms = now_ms
        self.end_offset = end_offset
        self.has_acknowledged = True

    def is_caught_up(self, now_ms: float) -> bool:
        """Return True if this replica would not hold up the high watermark as a voter."""
        return (
            self.last_caught_up_ms is not None
            and self.last_fetch_ms is not None
            and self.last_fetch_ms > now_ms - CAUGHT_UP_MS
        )


class Replicas:
    """The voters by id, and the observers that fetched lately by key."""

    __slots__ = ("observers", "voters")

    def __init__(self, voters: VoterSet) -> None:
        self.voters = {key.id: Replica(key) for key in voters.keys}
        self.observers: dict[ReplicaKey, Replica] = {}

    def voter(self, key: ReplicaKey) -> Replica | None:
        """Return this replica if it is a voter."""
        replica = self.voters.get(key.id)
        return replica if replica is not None and replica.key.matches(key) else None

    def observer(self, key: ReplicaKey, now_ms: float) -> Replica:
        """Return this observer; a new one takes the place of those long gone."""
        replica = self.observers.pop(key, None)
        if replica is None:
            self._make_room(now_ms)
            replica = Replica(key)
        self.observers[key] = replica  # the one that fetched last is the last
        return replica

    def change_voters(self, voters: VoterSet) -> None:
        """Take over a new voter set; what is known about each replica stays."""
        old = self.voters
        self.voters = {}
        for key in voters.keys:
            known = old.get(key.id)
            if known is None or not known.key.matches(key):
                known = self.observers.pop(key, None) or Replica(key)
            known.key = key
            self.voters[key.id] = known
        for replica in old.values():
            if self.voters.get(replica.key.id) is not replica:
                self.observers[replica.key] = replica

    def by_descending_end_offset(self) -> list[Replica]:
        """Return the voters, those with the longest log first."""
        return sorted(
            self.voters.values(),
            key=lambda r: -1 if r.end_offset is None else r.end_offset,
            reverse=True,
        )

    def majority_end_offset(self) -> int | None:
        """Return the offset that a majority of the voters has reached, None if unknown."""
        return self.by_descending_end_offset()[len(self.voters) // 2].end_offset

    def _make_room(self, now_ms: float) -> None:
        """Forget observers that did not fetch for long, and the first one if there are too many."""
        oldest_ms = now_ms - OBSERVER_SESSION_TIMEOUT_MS
        while self.observers:
            key, replica = next(iter(self.observers.items()))
            is_active = (replica.last_fetch_ms or 0) >= oldest_ms
            if is_active and len(self.observers) < MOST_OBSERVERS:
                break
            del self.observers[key]
