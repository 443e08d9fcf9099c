"""The voter sets and kraft.versions of the log, by the offset of their control record.

The latest voter set of the log counts, committed or not; when the log is truncated, the one
before counts again. Without any in the log, the configured (static) set counts.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.model.value import Value
from ottla.raft.voters import ReplicaKey, VoterSet

STATIC_VOTERS = 0
"""kraft.version 0: the voters are configured and stay."""
DYNAMIC_VOTERS = 1
"""kraft.version 1: the voters are in the log and can change (KIP-853)."""


class VotersAt(Value):
    """A VotersRecord of the log. Offset -1 is the bootstrap snapshot."""

    offset: int
    voters: VoterSet


class KraftVersionAt(Value):
    """A KRaftVersionRecord of the log. Offset -1 is the bootstrap snapshot."""

    offset: int
    version: int


class VoterHistory:
    """What the control records up to each offset said."""

    __slots__ = ("_entries", "_static", "_versions")

    def __init__(self, static: VoterSet) -> None:
        self._static = static
        self._entries: list[VotersAt] = []
        self._versions: list[KraftVersionAt] = []

    @property
    def last(self) -> VoterSet:
        return self._entries[-1].voters if self._entries else self._static

    @property
    def last_offset(self) -> int | None:
        """The offset of the latest VotersRecord, None with static voters."""
        return self._entries[-1].offset if self._entries else None

    def is_removed_after(self, key: ReplicaKey, offset: int) -> bool:
        """Return True if only the latest set, at or after `offset`, lacks this voter."""
        if len(self._entries) < 2 or self._entries[-1].offset < offset:
            return False
        return self._entries[-2].voters.is_voter(key) and not self.last.is_voter(key)

    @property
    def kraft_version(self) -> int:
        return self._versions[-1].version if self._versions else STATIC_VOTERS

    def add(self, records: Iterable[VotersAt | KraftVersionAt]) -> None:
        """Add control records in the order of the log."""
        for record in records:
            if isinstance(record, VotersAt):
                assert not self._entries or record.offset > self._entries[-1].offset
                self._entries.append(record)
            else:
                self._versions.append(record)

    def truncate(self, end_offset: int) -> None:
        """Forget the records at and after `end_offset`."""
        while self._entries and self._entries[-1].offset >= end_offset:
            self._entries.pop()
        while self._versions and self._versions[-1].offset >= end_offset:
            self._versions.pop()

    def trim(self, start_offset: int) -> None:
        """Forget what was replaced before `start_offset`; the log no longer goes there."""
        while len(self._entries) > 1 and self._entries[1].offset < start_offset:
            del self._entries[0]
        while len(self._versions) > 1 and self._versions[1].offset < start_offset:
            del self._versions[0]

    def replace(self, records: Iterable[VotersAt | KraftVersionAt]) -> None:
        """Take over a snapshot's records instead of all earlier ones."""
        self._entries.clear()
        self._versions.clear()
        self.add(records)
