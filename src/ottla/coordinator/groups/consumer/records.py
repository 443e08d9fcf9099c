"""Records of __consumer_offsets for consumer groups (KIP-848), in Kafka's layout.

A group is its epoch, its members with their subscriptions, the topics of their regular
expressions, the target assignment with its epoch, and the current assignment of each member.
"""

from __future__ import annotations

from ottla.coordinator.runtime.record import RecordKey, RecordValue
from ottla.model.ids import ZERO_UUID
from ottla.wire.message import Field, Items, Message, as_list


class _GroupKey(RecordKey):
    """The key of a record that each group has once."""

    __slots__ = ("group_id",)
    FIELDS = (Field("group_id", "string", (0, 0)),)

    def __init__(self, *, group_id: str = "") -> None:
        self.group_id = group_id


class _MemberKey(RecordKey):
    """The key of a record that each member has once."""

    __slots__ = ("group_id", "member_id")
    FIELDS = (Field("group_id", "string", (0, 0)), Field("member_id", "string", (0, 0)))

    def __init__(self, *, group_id: str = "", member_id: str = "") -> None:
        self.group_id = group_id
        self.member_id = member_id


class _Value(RecordValue):
    __slots__ = ()
    MAX_VERSION = 0
    FIRST_FLEXIBLE_VERSION = 0


class ConsumerGroupMetadataKey(_GroupKey):
    __slots__ = ()
    API_KEY = 3


class ConsumerGroupMetadataValue(_Value):
    """The epoch of a group, and a hash of its topics."""

    __slots__ = ("epoch", "metadata_hash")
    API_KEY = 3
    FIELDS = (
        Field("epoch", "int32", (0, 0)),
        Field("metadata_hash", "int64", (0, 0), tag=0),
    )

    def __init__(self, *, epoch: int = 0, metadata_hash: int = 0) -> None:
        self.epoch = epoch
        self.metadata_hash = metadata_hash


class ConsumerGroupPartitionMetadataKey(_GroupKey):
    __slots__ = ()
    API_KEY = 4


class PartitionMetadata(Message):
    __slots__ = ("partition", "racks")
    FIELDS = (
        Field("partition", "int32", (0, 0)),
        Field("racks", "array", (0, 0), of="string"),
    )

    def __init__(self, *, partition: int = 0, racks: Items[str] = ()) -> None:
        self.partition = partition
        self.racks = as_list(racks)


class TopicMetadata(Message):
    __slots__ = ("num_partitions", "partition_metadata", "topic_id", "topic_name")
    FIELDS = (
        Field("topic_id", "uuid", (0, 0)),
        Field("topic_name", "string", (0, 0)),
        Field("num_partitions", "int32", (0, 0)),
        Field("partition_metadata", "array", (0, 0), of=PartitionMetadata),
    )

    def __init__(
        self,
        *,
        topic_id: bytes = ZERO_UUID,
        topic_name: str = "",
        num_partitions: int = 0,
        partition_metadata: Items[PartitionMetadata] = (),
    ) -> None:
        self.topic_id = topic_id
        self.topic_name = topic_name
        self.num_partitions = num_partitions
        self.partition_metadata = as_list(partition_metadata)


class ConsumerGroupPartitionMetadataValue(_Value):
    """The topics a group subscribes to. Kafka writes it before 4.1, a hash replaced it."""

    __slots__ = ("topics",)
    API_KEY = 4
    FIELDS = (Field("topics", "array", (0, 0), of=TopicMetadata),)

    def __init__(self, *, topics: Items[TopicMetadata] = ()) -> None:
        self.topics = as_list(topics)


class ConsumerGroupMemberMetadataKey(_MemberKey):
    __slots__ = ()
    API_KEY = 5


class ClassicProtocol(Message):
    __slots__ = ("metadata", "name")
    FIELDS = (Field("name", "string", (0, 0)), Field("metadata", "bytes", (0, 0)))

    def __init__(self, *, name: str = "", metadata: bytes = b"") -> None:
        self.name = name
        self.metadata = metadata


class ClassicMemberMetadata(Message):
    """The fields of the JoinGroup of a classic member."""

    __slots__ = ("session_timeout_ms", "supported_protocols")
    FIELDS = (
        Field("session_timeout_ms", "int32", (0, 0)),
        Field("supported_protocols", "array", (0, 0), of=ClassicProtocol),
    )

    def __init__(
        self, *, session_timeout_ms: int = 0, supported_protocols: Items[ClassicProtocol] = ()
    ) -> None:
        self.session_timeout_ms = session_timeout_ms
        self.supported_protocols = as_list(supported_protocols)


class ConsumerGroupMemberMetadataValue(_Value):
    """A member's client and subscription."""

    __slots__ = (
        "classic_member_metadata",
        "client_host",
        "client_id",
        "instance_id",
        "rack_id",
        "rebalance_timeout_ms",
        "server_assignor",
        "subscribed_topic_names",
        "subscribed_topic_regex",
    )
    API_KEY = 5
    FIELDS = (
        Field("instance_id", "string", (0, 0), nullable=(0, 0)),
        Field("rack_id", "string", (0, 0), nullable=(0, 0)),
        Field("client_id", "string", (0, 0)),
        Field("client_host", "string", (0, 0)),
        Field("subscribed_topic_names", "array", (0, 0), of="string"),
        Field("subscribed_topic_regex", "string", (0, 0), nullable=(0, 0)),
        Field("rebalance_timeout_ms", "int32", (0, 0)),
        Field("server_assignor", "string", (0, 0), nullable=(0, 0)),
        Field(
            "classic_member_metadata",
            "struct",
            (0, 0),
            of=ClassicMemberMetadata,
            nullable=(0, 0),
            tag=0,
        ),
    )

    def __init__(
        self,
        *,
        instance_id: str | None = None,
        rack_id: str | None = None,
        client_id: str = "",
        client_host: str = "",
        subscribed_topic_names: Items[str] = (),
        subscribed_topic_regex: str | None = None,
        rebalance_timeout_ms: int = -1,
        server_assignor: str | None = None,
        classic_member_metadata: ClassicMemberMetadata | None = None,
    ) -> None:
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.client_id = client_id
        self.client_host = client_host
        self.subscribed_topic_names = as_list(subscribed_topic_names)
        self.subscribed_topic_regex = subscribed_topic_regex
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.server_assignor = server_assignor
        self.classic_member_metadata = classic_member_metadata


class ConsumerGroupTargetAssignmentMetadataKey(_GroupKey):
    __slots__ = ()
    API_KEY = 6


class ConsumerGroupTargetAssignmentMetadataValue(_Value):
    """The group epoch and the time of the target assignment."""

    __slots__ = ("assignment_epoch", "assignment_timestamp")
    API_KEY = 6
    FIELDS = (
        Field("assignment_epoch", "int32", (0, 0)),
        Field("assignment_timestamp", "int64", (0, 0), tag=0),
    )

    def __init__(self, *, assignment_epoch: int = 0, assignment_timestamp: int = 0) -> None:
        self.assignment_epoch = assignment_epoch
        self.assignment_timestamp = assignment_timestamp


class ConsumerGroupTargetAssignmentMemberKey(_MemberKey):
    __slots__ = ()
    API_KEY = 7


class TargetTopicPartitions(Message):
    __slots__ = ("partitions", "topic_id")
    FIELDS = (
        Field("topic_id", "uuid", (0, 0)),
        Field("partitions", "array", (0, 0), of="int32"),
    )

    def __init__(self, *, topic_id: bytes = ZERO_UUID, partitions: Items[int] = ()) -> None:
        self.topic_id = topic_id
        self.partitions = as_list(partitions)


class ConsumerGroupTargetAssignmentMemberValue(_Value):
    """The target of a member."""

    __slots__ = ("topic_partitions",)
    API_KEY = 7
    FIELDS = (Field("topic_partitions", "array", (0, 0), of=TargetTopicPartitions),)

    def __init__(self, *, topic_partitions: Items[TargetTopicPartitions] = ()) -> None:
        self.topic_partitions = as_list(topic_partitions)


class ConsumerGroupCurrentMemberAssignmentKey(_MemberKey):
    __slots__ = ()
    API_KEY = 8


class CurrentTopicPartitions(Message):
    """Partitions of a topic, each with the member epoch in which it was assigned."""

    __slots__ = ("assignment_epochs", "partitions", "topic_id")
    FIELDS = (
        Field("topic_id", "uuid", (0, 0)),
        Field("partitions", "array", (0, 0), of="int32"),
        Field("assignment_epochs", "array", (0, 0), of="int32", tag=0),
    )

    def __init__(
        self,
        *,
        topic_id: bytes = ZERO_UUID,
        partitions: Items[int] = (),
        assignment_epochs: Items[int] = (),
    ) -> None:
        self.topic_id = topic_id
        self.partitions = as_list(partitions)
        self.assignment_epochs = as_list(assignment_epochs)


class ConsumerGroupCurrentMemberAssignmentValue(_Value):
    """The current assignment of a member: what it has, what it must give up, its state."""

    __slots__ = (
        "assigned_partitions",
        "member_epoch",
        "partitions_pending_revocation",
        "previous_member_epoch",
        "state",
    )
    API_KEY = 8
    FIELDS = (
        Field("member_epoch", "int32", (0, 0)),
        Field("previous_member_epoch", "int32", (0, 0)),
        Field("state", "int8", (0, 0)),
        Field("assigned_partitions", "array", (0, 0), of=CurrentTopicPartitions),
        Field("partitions_pending_revocation", "array", (0, 0), of=CurrentTopicPartitions),
    )

    def __init__(
        self,
        *,
        member_epoch: int = 0,
        previous_member_epoch: int = 0,
        state: int = 0,
        assigned_partitions: Items[CurrentTopicPartitions] = (),
        partitions_pending_revocation: Items[CurrentTopicPartitions] = (),
    ) -> None:
        self.member_epoch = member_epoch
        self.previous_member_epoch = previous_member_epoch
        self.state = state
        self.assigned_partitions = as_list(assigned_partitions)
        self.partitions_pending_revocation = as_list(partitions_pending_revocation)


class ConsumerGroupRegularExpressionKey(RecordKey):
    __slots__ = ("group_id", "regular_expression")
    API_KEY = 16
    FIELDS = (
        Field("group_id", "string", (0, 0)),
        Field("regular_expression", "string", (0, 0)),
    )

    def __init__(self, *, group_id: str = "", regular_expression: str = "") -> None:
        self.group_id = group_id
        self.regular_expression = regular_expression


class ConsumerGroupRegularExpressionValue(_Value):
    """The topics that match a regular expression, at which metadata version and time."""

    __slots__ = ("timestamp", "topics", "version")
    API_KEY = 16
    FIELDS = (
        Field("topics", "array", (0, 0), of="string"),
        Field("version", "int64", (0, 0)),
        Field("timestamp", "int64", (0, 0)),
    )

    def __init__(self, *, topics: Items[str] = (), version: int = 0, timestamp: int = 0) -> None:
        self.topics = as_list(topics)
        self.version = version
        self.timestamp = timestamp
