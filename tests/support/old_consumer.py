"""A consumer that speaks the classic protocol, cooperatively, whatever the group speaks."""

from __future__ import annotations

from typing import Any

from ottla.model.errors import ErrorCode
from ottla.wire.codec import decoder, encoder
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from ottla.wire.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
    TopicPartition,
)
from tests.support.groups import TOPIC, Broker, Member


class OldConsumer(Member):
    """A consumer of the classic protocol that keeps what it has while it rejoins (KIP-429)."""

    def __init__(self, broker: Broker, name: str, *, version: int = 3, **fields: Any) -> None:
        super().__init__(broker, name, **fields)
        self.version = version
        self.owned: list[int] = []
        self.say()

    def say(self) -> None:
        """Prepare what the next join will tell."""
        message = ConsumerProtocolSubscription(
            topics=[TOPIC],
            owned_partitions=[TopicPartition(topic=TOPIC, partitions=self.owned)]
            if self.owned
            else [],
            generation_id=self.generation_id,
        )
        head = self.version.to_bytes(2, "big")
        self.protocols = [
            (name, head + encoder(ConsumerProtocolSubscription, self.version)(message))
            for name in ("cooperative-sticky", "range")
        ]

    def take_part(self) -> ErrorCode:
        """Join, sync and take over what the answer says, as often as it gives something up."""
        for _ in range(10):
            self.say()
            self.join()
            if self.joined.error_code:
                return ErrorCode(self.joined.error_code)
            self.sync()
            if self.synced.error_code:
                return ErrorCode(self.synced.error_code)
            mine = partitions_in(self.synced.assignment)
            gave_up = set(self.owned) - set(mine)
            self.owned = mine
            if not gave_up:
                return ErrorCode.NONE
        raise AssertionError("it never comes to rest")

    def beat(self) -> ErrorCode:
        """Send a heartbeat, and do what follows from it."""
        code = self.heartbeat()
        return self.take_part() if code is ErrorCode.REBALANCE_IN_PROGRESS else code


def partitions_in(assignment: bytes) -> list[int]:
    version = int.from_bytes(assignment[:2], "big")
    message = decoder(ConsumerProtocolAssignment, version)(assignment, 2, len(assignment))[0]
    return sorted(p for topic in message.assigned_partitions for p in topic.partitions)
