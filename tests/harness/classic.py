"""The classic protocol spoken by hand: each step a request of its own, on any connection."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from tests.harness.raw import Answer, RawConnection

JOIN_VERSION = 9
SYNC_VERSION = 5
HEARTBEAT_VERSION = 4
LEAVE_VERSION = 5
MEMBER_ID_REQUIRED = 79


def subscription(*topics: str) -> bytes:
    """Return the bytes of a consumer's subscription, version 0."""
    names = b"".join(_text(topic) for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def assignment(topic: str, *partitions: int) -> bytes:
    """Return the bytes of a consumer's assignment, version 0."""
    numbers = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hi", 0, 1) + _text(topic) + numbers + struct.pack(">i", -1)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


@dataclass
class ClassicMember:
    """One member of a group; requests carry what it has learned so far unless told otherwise."""

    raw: RawConnection
    group: str
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None
    session_timeout_ms: int = 10_000
    rebalance_timeout_ms: int = 10_000
    protocol_type: str = "consumer"
    protocols: Sequence[tuple[str, bytes]] = (("range", b"one"),)

    def join_fields(self, version: int = JOIN_VERSION) -> dict[str, object]:
        fields: dict[str, object] = {
            "group_id": self.group,
            "session_timeout": self.session_timeout_ms,
            "member_id": self.member_id,
            "protocol_type": self.protocol_type,
            "protocols": [{"name": name, "metadata": data} for name, data in self.protocols],
        }
        if version >= 1:
            fields["rebalance_timeout"] = self.rebalance_timeout_ms
        if version >= 5:
            fields["group_instance_id"] = self.instance_id
        return fields

    def send_join(self, version: int = JOIN_VERSION) -> int:
        """Ask to join and do not wait."""
        return self.raw.send("join_group", version, **self.join_fields(version))

    def receive_join(self, correlation_id: int, version: int = JOIN_VERSION) -> Answer:
        """Return the answer to `send_join`, and remember what it says."""
        answer = self.raw.receive("join_group", version, correlation_id)
        self.member_id = answer.member_id or self.member_id
        if answer.error_code == 0:
            self.generation = answer.generation_id
        return answer

    def join(self, version: int = JOIN_VERSION) -> Answer:
        """Join; with the id that is given first where the version asks for that."""
        answer = self.receive_join(self.send_join(version), version)
        if answer.error_code == MEMBER_ID_REQUIRED:
            answer = self.receive_join(self.send_join(version), version)
        return answer

    def sync(
        self, assignments: dict[str, bytes] | None = None, version: int = SYNC_VERSION
    ) -> Answer:
        """Get one's assignment; the leader gives those of all."""
        fields: dict[str, object] = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "assignments": [
                {"member_id": member_id, "assignment": data}
                for member_id, data in (assignments or {}).items()
            ],
        }
        if version >= 3:
            fields["group_instance_id"] = self.instance_id
        if version >= 5:
            fields |= {"protocol_type": self.protocol_type, "protocol_name": self.protocols[0][0]}
        return self.raw.request("sync_group", version, **fields)

    def heartbeat(self, **changes: object) -> int:
        """Send a heartbeat; return the code of its answer."""
        fields = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            **changes,
        }
        return int(self.raw.request("heartbeat", HEARTBEAT_VERSION, **fields).error_code)

    def leave(self) -> int:
        """Leave the group; return the code of the answer."""
        answer = self.raw.request(
            "leave_group",
            LEAVE_VERSION,
            group_id=self.group,
            members=[{"member_id": self.member_id, "group_instance_id": self.instance_id}],
        )
        return int(answer.error_code or answer.members[0].error_code)

    def stable(self, mine: bytes = b"mine") -> None:
        """Be the only member of a stable group."""
        answer = self.join()
        assert answer.error_code == 0, answer
        assert self.sync({self.member_id: mine}).error_code == 0


def commit(
    raw: RawConnection,
    group: str,
    offsets: dict[tuple[str, int], int],
    *,
    version: int = 8,
    generation: int = -1,
    member_id: str = "",
    metadata: str | None = "",
    leader_epoch: int = -1,
) -> dict[tuple[str, int], int]:
    """Commit offsets; the code of each partition."""
    topics: dict[str, list[dict[str, object]]] = {}
    for (topic, partition), offset in offsets.items():
        entry: dict[str, object] = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_metadata": metadata,
        }
        if version >= 6:
            entry["committed_leader_epoch"] = leader_epoch
        topics.setdefault(topic, []).append(entry)
    answer = raw.request(
        "offset_commit",
        version,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[{"name": name, "partitions": parts} for name, parts in topics.items()],
        **({"retention_time": -1} if version <= 4 else {}),
    )
    return {
        (topic.name, found.partition_index): int(found.error_code)
        for topic in answer.topics
        for found in topic.partitions
    }


def committed(
    raw: RawConnection, group: str, *partitions: tuple[str, int], version: int = 8
) -> dict[tuple[str, int], int]:
    """Return the committed offsets of these partitions, or of all if none are named."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    asked = [{"name": name, "partition_indexes": found} for name, found in topics.items()] or None
    if version >= 8:
        request: dict[str, object] = {"groups": [{"group_id": group, "topics": asked}]}
        (answer,) = raw.request("offset_fetch", version, **request).groups
    else:
        answer = raw.request("offset_fetch", version, group_id=group, topics=asked)
    if version >= 2:
        assert answer.error_code == 0, answer
    return {
        (topic.name, found.partition_index): found.committed_offset
        for topic in answer.topics
        for found in topic.partitions
    }
