"""A member of a consumer group.

`metadata` and `current` come from records and change by replay. The rest is about its session,
and is lost with the coordinator. A heartbeat moves `deadline_ms` and touches no timer: the
timer looks at the deadline when it fires, and is set again if that has moved.

A member may speak the classic protocol (KIP-848, migration). Then it joins and syncs, and its
member epoch is what it knows as the generation.
"""

from __future__ import annotations

from typing import Final

from ottla.coordinator.groups.consumer.current_assignment import Current
from ottla.coordinator.groups.consumer.records import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from ottla.coordinator.groups.member_memory import member_bytes
from ottla.replication.timers import Timer

NOBODY: Final = ConsumerGroupMemberMetadataValue()


def metadata_bytes(metadata: ConsumerGroupMemberMetadataValue) -> int:
    """Return about how much memory a member with this metadata takes."""
    texts: list[str | bytes | None] = [
        metadata.instance_id,
        metadata.rack_id,
        metadata.client_id,
        metadata.subscribed_topic_regex,
        *metadata.subscribed_topic_names,
    ]
    if metadata.classic_member_metadata is not None:
        for protocol in metadata.classic_member_metadata.supported_protocols:
            texts += (protocol.name, protocol.metadata)
    return member_bytes(texts)


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
        """Fires when the member takes too long to give up partitions, or to join or sync again."""

    def set_metadata(self, metadata: ConsumerGroupMemberMetadataValue) -> None:
        """Replay the member's metadata."""
        self.metadata = metadata
        self.topic_names = frozenset(metadata.subscribed_topic_names)

    @property
    def memory_bytes(self) -> int:
        """About how much memory the member takes."""
        return metadata_bytes(self.metadata)

    @property
    def classic(self) -> ClassicMemberMetadata | None:
        """The fields of its JoinGroup, None if it speaks the consumer protocol."""
        return self.metadata.classic_member_metadata

    def stop_timers(self) -> None:
        """Stop all timers: the member is removed."""
        for timer in (self.session_timer, self.rebalance_timer):
            if timer is not None:
                timer.cancel()
        self.session_timer = self.rebalance_timer = None
