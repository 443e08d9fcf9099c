"""Members of a group that copy in transactions (KIP-447), as Kafka Streams does.

Each has a transactional id of its own, and copies the partitions that the group assigns to it. It
commits offsets with its member id and generation. A member that was away for longer than its
session has lost its partitions, and does not know it: the group coordinator refuses its offsets,
and the next owner waits until no offsets of an open transaction are left (require stable).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from random import Random
from typing import Any

from ottla.model.errors import ErrorCode
from ottla.sim.cluster_run import copier_requests as requests
from ottla.sim.cluster_run.channels import Answer, Asking, Call, Course, Pause
from ottla.sim.cluster_run.copier import ClusterRunOfCopiers, Copier
from ottla.sim.cluster_run.group_members import partitions_of
from ottla.sim.cluster_run.history import PartitionKey
from ottla.sim.cluster_run.transaction_history import Transaction
from ottla.sim.network.exchange import Exchange

_OUT = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class _JoinAgain(Exception):
    """The group rebalances, or goes on without this member."""


class _WithId(Exception):
    """The coordinator has made a member id, with which the member has to join."""

    def __init__(self, member_id: str) -> None:
        super().__init__(member_id)
        self.member_id = member_id


class GroupCopier(Copier):
    """One process after the other, each a new member of the group."""

    AWAY_MS = (100.0, 2000.0, 3000.0)
    STUMBLES = 0.25
    group_id = "copying-group"

    def __init__(
        self,
        name: str,
        environment: ClusterRunOfCopiers,
        chance: Random,
        *,
        sources: Sequence[PartitionKey],
        target: str,
        version: int,
        timeout_ms: int,
    ) -> None:
        super().__init__(
            name,
            environment,
            chance,
            source=sources[0],
            target=target,
            version=version,
            timeout_ms=timeout_ms,
        )
        self._sources = sources
        self.transactional_id = f"{self.group_id}-{name}"
        self.member = requests.NO_MEMBER

    def _live(self) -> Course:
        self._must_restart = False
        self.member = requests.NO_MEMBER
        yield from self._take_over()
        while True:
            try:
                yield from self._work_in_group()
            except _JoinAgain:
                continue

    def _work_in_group(self) -> Course:
        """Join, and copy what is assigned, until the group rebalances."""
        owned = yield from self._join()
        positions: dict[PartitionKey, int] = {}
        while True:
            yield Pause(self.chance.choice((1.0, 20.0, 100.0)))
            yield from self._stumble(0.02)
            beat = requests.heartbeat(self.group_id, self.member)
            yield from self._ask(self._group_coordinator, *beat)
            if not owned or self._target not in self.environment.image.topics:
                continue
            self.source = self.chance.choice(owned)
            if self.source not in positions:
                yield from self._find_position()
                positions[self.source] = self._position
            self._position = positions[self.source]
            found = yield from self._read()
            if found:
                yield from self._copy(found)
                positions[self.source] = self._position

    def _join(self) -> Generator[list[Call] | Pause, list[Answer], list[PartitionKey]]:
        """Become a member of a generation; return the partitions that it is assigned."""
        joined: Any = (yield from self._ask_to_join()).reply
        self.member = requests.GroupMember(joined.member_id, joined.generation_id)
        assignment: dict[str, list[PartitionKey]] = {}
        members = sorted(each.member_id for each in joined.members)
        for number, key in enumerate(self._sources if members else ()):
            assignment.setdefault(members[number % len(members)], []).append(key)
        asked = requests.sync(self.group_id, self.member, assignment)
        exchange = yield from self._ask(self._group_coordinator, *asked)
        synced: Any = exchange.reply
        return partitions_of(synced.assignment)

    def _ask_to_join(self) -> Asking:
        while True:
            asked = requests.join(self.group_id, self.member.member_id)
            try:
                return (yield from self._ask(self._group_coordinator, *asked))
            except _WithId as told:
                self.member = requests.GroupMember(told.member_id, -1)

    def _commit_offset(self, transaction: Transaction) -> Course:
        """Commit the offset, or abort if the group goes on without this member."""
        yield from self._stumble(self.STUMBLES)
        try:
            yield from super()._commit_offset(transaction)
        except _JoinAgain:
            yield from self._end(transaction, committed=False)
            raise

    def _refused(self, exchange: Exchange, code: int) -> None:
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            reply: Any = exchange.reply
            raise _WithId(reply.member_id)
        if code in _OUT:
            self.member = requests.NO_MEMBER
            raise _JoinAgain
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            raise _JoinAgain
        super()._refused(exchange, code)
