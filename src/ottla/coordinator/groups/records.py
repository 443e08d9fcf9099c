"""Records of __consumer_offsets for committed offsets and classic groups, in Kafka's layout."""

from __future__ import annotations

from ottla.coordinator.runtime.record import RecordKey, RecordValue
from ottla.model.ids import ZERO_UUID
from ottla.wire.message import Field, Items, Message, as_list

NO_EXPIRATION = -1


class OffsetCommitKey(RecordKey):
    """A partition for which a group commits offsets. `encoded` caches the bytes of the key."""

    __slots__ = ("encoded", "group", "partition", "topic")
    API_KEY = 1
    FIELDS = (
        Field("group", "string", (0, 0)),
        Field("topic", "string", (0, 0)),
        Field("partition", "int32", (0, 0)),
    )

    def __init__(self, *, group: str = "", topic: str = "", partition: int = 0) -> None:
        self.group = group
        self.topic = topic
        self.partition = partition
        self.encoded: bytes | None = None


class OffsetCommitValue(RecordValue):
    """A committed offset.

    Only version 1 has an expiration time of its own.
    """

    __slots__ = (
        "commit_timestamp",
        "expire_timestamp",
        "leader_epoch",
        "metadata",
        "offset",
        "topic_id",
    )
    API_KEY = 1
    MAX_VERSION = 4
    FIRST_FLEXIBLE_VERSION = 4
    WRITTEN_VERSION = 4
    FIELDS = (
        Field("offset", "int64", (0, 4)),
        Field("leader_epoch", "int32", (3, 4)),
        Field("metadata", "string", (0, 4)),
        Field("commit_timestamp", "int64", (0, 4)),
        Field("expire_timestamp", "int64", (1, 1)),
        Field("topic_id", "uuid", (4, 4), tag=0),
    )

    def __init__(
        self,
        *,
        offset: int = 0,
        leader_epoch: int = -1,
        metadata: str = "",
        commit_timestamp: int = 0,
        expire_timestamp: int = NO_EXPIRATION,
        topic_id: bytes = ZERO_UUID,
    ) -> None:
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.commit_timestamp = commit_timestamp
        self.expire_timestamp = expire_timestamp
        self.topic_id = topic_id

    @property
    def written_version(self) -> int:
        return 1 if self.expire_timestamp != NO_EXPIRATION else self.WRITTEN_VERSION


class GroupMetadataKey(RecordKey):
    """A classic group."""

    __slots__ = ("group",)
    API_KEY = 2
    FIELDS = (Field("group", "string", (0, 0)),)

    def __init__(self, *, group: str = "") -> None:
        self.group = group


class MemberMetadata(Message):
    """A member of a classic group in one generation."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "member_id",
        "rebalance_timeout",
        "session_timeout",
        "subscription",
    )
    FIELDS = (
        Field("member_id", "string", (0, 4)),
        Field("group_instance_id", "string", (3, 4), nullable=(3, 4)),
        Field("client_id", "string", (0, 4)),
        Field("client_host", "string", (0, 4)),
        Field("rebalance_timeout", "int32", (1, 4)),
        Field("session_timeout", "int32", (0, 4)),
        Field("subscription", "bytes", (0, 4)),
        Field("assignment", "bytes", (0, 4)),
    )

    def __init__(
        self,
        *,
        member_id: str = "",
        group_instance_id: str | None = None,
        client_id: str = "",
        client_host: str = "",
        rebalance_timeout: int = -1,
        session_timeout: int = 0,
        subscription: bytes = b"",
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout = rebalance_timeout
        self.session_timeout = session_timeout
        self.subscription = subscription
        self.assignment = assignment


class GroupMetadataValue(RecordValue):
    """A generation of a classic group: its protocol, its members and their assignments."""

    __slots__ = (
        "current_state_timestamp",
        "generation",
        "leader",
        "members",
        "protocol",
        "protocol_type",
    )
    API_KEY = 2
    MAX_VERSION = 4
    FIRST_FLEXIBLE_VERSION = 4
    WRITTEN_VERSION = 3
    FIELDS = (
        Field("protocol_type", "string", (0, 4)),
        Field("generation", "int32", (0, 4)),
        Field("protocol", "string", (0, 4), nullable=(0, 4)),
        Field("leader", "string", (0, 4), nullable=(0, 4)),
        Field("current_state_timestamp", "int64", (2, 4)),
        Field("members", "array", (0, 4), of=MemberMetadata),
    )

    def __init__(
        self,
        *,
        protocol_type: str = "",
        generation: int = 0,
        protocol: str | None = None,
        leader: str | None = None,
        current_state_timestamp: int = -1,
        members: Items[MemberMetadata] = (),
    ) -> None:
        self.protocol_type = protocol_type
        self.generation = generation
        self.protocol = protocol
        self.leader = leader
        self.current_state_timestamp = current_state_timestamp
        self.members = as_list(members)
