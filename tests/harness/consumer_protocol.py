"""The new protocol (KIP-848) spoken by hand: one heartbeat after the other."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.harness.deadline import eventually
from tests.harness.raw import Answer, RawConnection

VERSION = 1
JOIN, LEAVE, LEAVE_STATIC = 0, -1, -2


def new_member_id() -> str:
    """Return an id as clients make them since version 1."""
    return str(uuid.uuid4())


@dataclass
class NewMember:
    """One member of a group; requests carry what it has learned so far unless told otherwise."""

    raw: RawConnection
    group: str
    topics: Sequence[str] | None = None
    member_id: str = field(default_factory=new_member_id)
    epoch: int = 0
    instance_id: str | None = None
    regex: str | None = None
    assignor: str | None = None
    rebalance_timeout_ms: int = 10_000
    owned: dict[uuid.UUID, list[int]] = field(default_factory=dict)

    def beat(self, **changes: object) -> Answer:
        """Send a heartbeat, remember what its answer says, and return the answer."""
        joining = self.epoch == JOIN
        fields: dict[str, object] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance_id,
            "rack_id": None,
            "rebalance_timeout": self.rebalance_timeout_ms if joining else -1,
            "subscribed_topic_names": self.topics if joining else None,
            "subscribed_topic_regex": self.regex if joining else None,
            "server_assignor": self.assignor if joining else None,
            "topic_partitions": [] if joining else None,
            **changes,
        }
        answer = self.raw.request("consumer_group_heartbeat", VERSION, **fields)
        if answer.error_code == 0:
            self.member_id = answer.member_id or self.member_id
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = {
                    topic.topic_id: sorted(topic.partitions)
                    for topic in answer.assignment.topic_partitions
                }
        return answer

    def told(self) -> list[dict[str, object]]:
        """Return what it owns, as a heartbeat says it."""
        return [{"topic_id": topic, "partitions": parts} for topic, parts in self.owned.items()]

    def settle(self, count: int) -> None:
        """Send heartbeats, each with what it owns, until it owns this many partitions."""

        def enough() -> bool:
            assert self.beat(topic_partitions=self.told()).error_code == 0
            return sum(len(parts) for parts in self.owned.values()) == count

        eventually(enough, f"{self.member_id} owns {count}")

    def leave(self, epoch: int = LEAVE) -> Answer:
        return self.beat(member_epoch=epoch)
