"""Counts over the members of a group, updated as members change.

With them a heartbeat, a join and a listing do not need to look at all members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TypeVar

from ottla.coordinator.groups.consumer.current_assignment import MemberState
from ottla.coordinator.groups.consumer.member import ConsumerMember

K = TypeVar("K", bound=Hashable)


class MemberCounts:
    """How many members have each topic, assignor, protocol and so on."""

    __slots__ = ("assignors", "classic", "classic_protocols", "regexes", "stable", "topics")

    def __init__(self) -> None:
        self.topics: Counter[str] = Counter()
        self.regexes: Counter[str] = Counter()
        self.assignors: Counter[str] = Counter()
        self.classic_protocols: Counter[str] = Counter()
        self.classic = 0
        """Members that speak the classic protocol."""
        self.stable: Counter[int] = Counter()
        """Members that have reached their target, by member epoch."""

    def add(self, member: ConsumerMember, change: int = 1) -> None:
        """Count a member, or with -1, remove it from the counts."""
        metadata = member.metadata
        _count(self.topics, member.topic_names, change)
        if metadata.subscribed_topic_regex:
            _count(self.regexes, (metadata.subscribed_topic_regex,), change)
        if metadata.server_assignor is not None:
            _count(self.assignors, (metadata.server_assignor,), change)
        if member.classic is not None:
            self.classic += change
            names = {protocol.name for protocol in member.classic.supported_protocols}
            _count(self.classic_protocols, names, change)
        self.add_step(member, change)

    def add_step(self, member: ConsumerMember, change: int = 1) -> None:
        """Count only the state of the member."""
        if member.current.state is MemberState.STABLE:
            _count(self.stable, (member.current.epoch,), change)


def _count(counter: Counter[K], keys: Iterable[K], change: int) -> None:
    for key in keys:
        number = counter[key] + change
        if number:
            counter[key] = number
        else:
            del counter[key]
