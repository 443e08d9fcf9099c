"""A member of a group of the new protocol.

`metadata` and `current` are what the log says of it and change by replay. The rest is about
its signs of life, and dies with the coordinator. A heartbeat moves `deadline_ms` and touches
no timer: the timer looks at the deadline when it fires and sleeps on if that has moved.

A member may speak the classic protocol (KIP-848, migration): then it joins and syncs, and
its member epoch is what it knows as the generation.
"""

from __future__ import annotations

from typing import Final

from ottla.coordinator.groups.consumer.current_assignment import Current
from ottla.coordinator.groups.consumer.records import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from ottla.replication.timers import Timer

NOBODY: Final = ConsumerGroupMemberMetadataValue()


class ConsumerMember:
    """One consumer."""

    __slots__ = (
        "current",
        "deadline_ms",
        "member_id",
        "metadata",
        "rebalance_timer",
        "session_timer",
        "topic_names",
    )

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.metadata = NOBODY
        self.topic_names: frozenset[str] = frozenset()
        self.current = Current()
        self.deadline_ms = 0.0
        self.session_timer: Timer | None = None
        self.rebalance_timer: Timer | None = None
        """Fires when it was too slow: to give up partitions, or to join or sync again."""

    def describe_as(self, metadata: ConsumerGroupMemberMetadataValue) -> None:
        """Replay: who the member is from now on."""
        self.metadata = metadata
        self.topic_names = frozenset(metadata.subscribed_topic_names)

    @property
    def classic(self) -> ClassicMemberMetadata | None:
        """What it said when it joined by the classic protocol, if it did."""
        return self.metadata.classic_member_metadata

    def stop_timers(self) -> None:
        """It is no longer a member."""
        for timer in (self.session_timer, self.rebalance_timer):
            if timer is not None:
                timer.cancel()
        self.session_timer = self.rebalance_timer = None
