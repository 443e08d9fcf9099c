"""ConsumerGroupDescribe: a group with its members and their assignments."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.consumer.member import ConsumerMember
from ottla.coordinator.groups.group_shard import GroupShard
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode
from ottla.model.steps import Steps, in_steps
from ottla.wire.messages.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def describe_consumer_group(shard: GroupShard, group_id: str) -> Steps[DescribedGroup]:
    """Return the group, or GROUP_ID_NOT_FOUND in its place."""
    group = shard.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        reason = "not found." if group is None else "is not a consumer group."
        return DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {reason}",
        )
    described = DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor_name
        or shard.broker.config.consumer_groups.group_consumer_assignors[0],
    )
    image = shard.broker.image
    members = list(group.members.values())
    described.members = yield from in_steps(lambda each: _member(group, each, image), members)
    return described


def _member(group: ConsumerGroup, member: ConsumerMember, image: MetadataImage) -> Member:
    metadata = member.metadata
    return Member(
        member_id=member.member_id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        member_epoch=member.current.epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=metadata.subscribed_topic_names,
        subscribed_topic_regex=metadata.subscribed_topic_regex or "",
        assignment=_assignment(member.current.assigned, image),
        target_assignment=_assignment(group.target_of(member.member_id).partitions, image),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(partitions: Mapping[bytes, Collection[int]], image: MetadataImage) -> Assignment:
    topics = [
        TopicPartitions(
            topic_id=topic.topic_id,
            topic_name=topic.name,
            partitions=sorted(partitions[topic.topic_id]),
        )
        for topic in map(image.topics_by_id.get, partitions)
        if topic is not None
    ]
    return Assignment(topic_partitions=topics)
