"""What members of both kinds of groups share: finding the coordinator, commits and fetches."""

from __future__ import annotations

from random import Random as Generator
from typing import Final

from ottla.sim.clients.admin import NAMES
from ottla.sim.clients.client import Client, Environment
from ottla.sim.network.exchange import Exchange
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

SUBSCRIBED: Final = NAMES[:2]


class GroupMember(Client):
    """One request at a time. Offsets are numbers that nobody else commits, and they grow."""

    THINK_MS = (5.0, 20.0, 50.0, 100.0, 300.0)
    GROUP_ID = ""
    LONG_PAUSE_MS = 4000.0

    def __init__(self, name: str, environment: Environment, chance: Generator) -> None:
        super().__init__(name, environment, chance)
        self._knows_coordinator = False
        self._silent_until_ms = 0.0

    def most_in_flight(self) -> int:
        return 1

    def act(self) -> None:
        if self.environment.monotonic_ms() < self._silent_until_ms:
            return
        if not self._knows_coordinator:
            self.ask(FindCoordinatorRequest(key=self.GROUP_ID), 3)
        elif self.chance.random() < 0.02:
            self._silent_until_ms = self.environment.monotonic_ms() + self.LONG_PAUSE_MS
        else:
            self.take_turn()

    def take_turn(self) -> None:
        """Do what a member does that knows its coordinator."""
        raise NotImplementedError

    def received(self, exchange: Exchange) -> None:
        if isinstance(exchange.reply, FindCoordinatorResponse):
            self._knows_coordinator = not exchange.reply.error_code

    def pick_partition(self) -> tuple[str, int] | None:
        """Return a partition of the subscribed topics, if there is one."""
        places = [
            (place.topic.name, place.partition_index)
            for place in self.environment.model.places()
            if place.topic.name in SUBSCRIBED
        ]
        return self.chance.choice(places) if places else None

    def commit(self, place: tuple[str, int], generation_id: int, member_id: str) -> None:
        """Commit a new offset."""
        name, index = place
        partition = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=self.environment.new_uid()
        )
        request = OffsetCommitRequest(
            group_id=self.GROUP_ID,
            generation_id_or_member_epoch=generation_id,
            member_id=member_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=[partition])],
        )
        self.ask(request, self.chance.choice(self.commit_versions()))

    def commit_versions(self) -> tuple[int, ...]:
        return (9,)

    def fetch_offset(self, place: tuple[str, int]) -> None:
        """Ask for the committed offset of a partition."""
        topic = OffsetFetchRequestTopic(name=place[0], partition_indexes=[place[1]])
        request = OffsetFetchRequest(group_id=self.GROUP_ID, topics=[topic])
        self.ask(request, self.chance.choice((2, 5, 6, 7)))
