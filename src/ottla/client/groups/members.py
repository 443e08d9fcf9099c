"""Descriptions of groups and their members, in one form for both protocols.

In a classic group, subscriptions and assignments are bytes that clients encode. They are
decoded if the group's protocol type is consumer. If that fails, the list is empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from ottla.client.groups.coordinators import GroupCoordinator
from ottla.model.ids import TopicPartition
from ottla.wire.codec import DecodeError, decoder
from ottla.wire.message import Message
from ottla.wire.messages import consumer_group_describe as new
from ottla.wire.messages import describe_groups as classic
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

M = TypeVar("M", bound=Message)
CLASSIC = "classic"
CONSUMER = "consumer"
DEAD = "Dead"
EMPTY = "Empty"
CONSUMER_PROTOCOL_TYPE = "consumer"
_MEMBER_TYPES = {0: CLASSIC, 1: CONSUMER}
_VERSION_BYTES = 2


class GroupMember(NamedTuple):
    """One member with its subscription and assignment.

    `epoch` and `target` are None in a classic group. In the new protocol, `target` is the
    assignment that the member will have at the end of the rebalance.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    member_type: str
    epoch: int | None
    subscribed_topics: list[str]
    subscribed_regex: str | None
    assignment: list[TopicPartition]
    target: list[TopicPartition] | None


class GroupDescription(NamedTuple):
    """One group. The epochs are None in a classic group."""

    group: str
    group_type: str
    protocol_type: str
    state: str
    assignor: str
    epoch: int | None
    target_epoch: int | None
    coordinator: GroupCoordinator
    members: list[GroupMember]

    @property
    def is_dead(self) -> bool:
        """True if the group does not exist: old brokers return it as dead."""
        return self.state == DEAD and not self.members

    @property
    def is_empty(self) -> bool:
        """True if the group has no members, so that its offsets may be reset."""
        return self.state in (EMPTY, DEAD)


def consumer_description(
    group: new.DescribedGroup, coordinator: GroupCoordinator
) -> GroupDescription:
    """Return the description of a group of the new protocol."""
    return GroupDescription(
        group.group_id,
        CONSUMER,
        CONSUMER_PROTOCOL_TYPE,
        group.group_state,
        group.assignor_name,
        group.group_epoch,
        group.assignment_epoch,
        coordinator,
        _by_id(_new_member(member) for member in group.members),
    )


def classic_description(
    group: classic.DescribedGroup, coordinator: GroupCoordinator
) -> GroupDescription:
    """Return the description of a group of the classic protocol."""
    of_consumers = group.protocol_type in ("", CONSUMER_PROTOCOL_TYPE)
    return GroupDescription(
        group.group_id,
        CLASSIC,
        group.protocol_type,
        group.group_state,
        group.protocol_data,
        None,
        None,
        coordinator,
        _by_id(_classic_member(member, of_consumers) for member in group.members),
    )


def assigned(data: bytes) -> list[TopicPartition]:
    """Return the partitions of a consumer's assignment; none if it cannot be decoded."""
    message = _versioned(ConsumerProtocolAssignment, data)
    if message is None:
        return []
    return _partitions((topic.topic, topic.partitions) for topic in message.assigned_partitions)


def subscribed(data: bytes) -> list[str]:
    """Return the topics of a consumer's subscription; none if it cannot be decoded."""
    message = _versioned(ConsumerProtocolSubscription, data)
    return [] if message is None else sorted(message.topics)


def _by_id(members: Iterable[GroupMember]) -> list[GroupMember]:
    return sorted(members, key=lambda member: member.member_id)


def _new_member(member: new.Member) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        _host(member.client_host),
        _MEMBER_TYPES.get(member.member_type, CONSUMER),
        member.member_epoch,
        sorted(member.subscribed_topic_names),
        member.subscribed_topic_regex or None,
        _assignment(member.assignment),
        _assignment(member.target_assignment),
    )


def _classic_member(member: classic.DescribedGroupMember, of_consumers: bool) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        _host(member.client_host),
        CLASSIC,
        None,
        subscribed(member.member_metadata) if of_consumers else [],
        None,
        assigned(member.member_assignment) if of_consumers else [],
        None,
    )


def _assignment(assignment: new.Assignment) -> list[TopicPartition]:
    return _partitions(
        (topic.topic_name, topic.partitions) for topic in assignment.topic_partitions
    )


def _partitions(topics: Iterable[tuple[str, list[int]]]) -> list[TopicPartition]:
    return sorted(TopicPartition(topic, index) for topic, indexes in topics for index in indexes)


def _host(text: str) -> str:
    # Java's InetAddress prints as name/address, here with an empty name.
    return text.removeprefix("/")


def _versioned(kind: type[M], data: bytes) -> M | None:
    """Decode a message that begins with its version. Decode an unknown version as the newest."""
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if len(data) < _VERSION_BYTES or version < 0:
        return None
    try:
        decode = decoder(kind, min(version, kind.MAX_VERSION))
        return decode(data, _VERSION_BYTES, len(data))[0]
    except DecodeError:
        return None
