"""ConsumerGroupHeartbeat: members join, stay, change and leave (KIP-848).

A heartbeat with nothing new, of a member that has reached its target, looks at that member
only.
"""

from __future__ import annotations

from ottla.coordinator.groups.client import Client
from ottla.coordinator.groups.consumer import member_removal, migration, sessions
from ottla.coordinator.groups.consumer.assignment import Partitions, from_pairs
from ottla.coordinator.groups.consumer.current_assignment import (
    JOINING,
    LEAVING,
    LEAVING_STATIC,
    EpochPartitions,
    is_subset,
)
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.consumer.member import ConsumerMember
from ottla.coordinator.groups.consumer.member_update import MemberUpdate
from ottla.coordinator.groups.consumer.records import ConsumerGroupMemberMetadataValue
from ottla.coordinator.groups.consumer.subscription_metadata import MAX_TOPICS
from ottla.coordinator.groups.group_shard import GroupShard
from ottla.coordinator.groups.record_serde import GroupRecord
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import uuid_to_text
from ottla.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)

FIRST_MEMBER_ID_REQUIRED = 1
"""From this version on consumers choose their member ids themselves (KIP-1082)."""

_NOT_GIVEN = -1


def heartbeat(
    shard: GroupShard, request: ConsumerGroupHeartbeatRequest, client: Client
) -> tuple[ConsumerGroupHeartbeatResponse, list[GroupRecord]]:
    """Return the response, valid once the records are committed, and the records."""
    group = shard.groups.get(request.group_id)
    if isinstance(group, ConsumerGroup):
        member = group.members.get(request.member_id)
        if member is not None and _is_plain(group, member, request, client):
            sessions.keep_alive(group, member)
            return _response(group, member.member_id, member.current.epoch, group.epoch), []
    _check_request(request, client.version, shard)
    if request.member_epoch < 0:
        return _leave(shard, request)
    return _stay(shard, request, client)


def _is_plain(
    group: ConsumerGroup,
    member: ConsumerMember,
    request: ConsumerGroupHeartbeatRequest,
    client: Client,
) -> bool:
    """Return True if neither the member nor the group has anything new to say."""
    metadata = member.metadata
    return (
        request.member_epoch == member.current.epoch
        and group.epoch == group.assignment_epoch
        and member.current.is_reconciled(group.epoch)
        and group.topics_version == group.shard.topic_patterns.version
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.server_assignor is None
        and request.rack_id is None
        and request.rebalance_timeout in (_NOT_GIVEN, metadata.rebalance_timeout_ms)
        and request.instance_id in (None, metadata.instance_id)
        and metadata.client_id == client.client_id
        and metadata.client_host == client.client_host
        and metadata.classic_member_metadata is None
    )


def _check_request(request: ConsumerGroupHeartbeatRequest, version: int, shard: GroupShard) -> None:
    epoch = request.member_epoch
    if version >= FIRST_MEMBER_ID_REQUIRED or epoch > JOINING or epoch == LEAVING:
        _check_not_empty(request.member_id, "MemberId")
    _check_not_empty(request.group_id, "GroupId")
    _check_not_empty(request.instance_id, "InstanceId")
    _check_not_empty(request.rack_id, "RackId")
    if len(request.subscribed_topic_names or ()) > MAX_TOPICS:
        raise _invalid(f"SubscribedTopicNames may have {MAX_TOPICS} names.")
    if epoch == JOINING:
        _check_first(request)
    elif epoch < LEAVING_STATIC:
        raise _invalid("MemberEpoch is invalid.")
    elif epoch == LEAVING_STATIC and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    assignors = shard.broker.config.consumer_groups.group_consumer_assignors
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor[:100]} is not supported. Supported"
            f" assignors: {', '.join(assignors)}.",
        )


def _check_first(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout == _NOT_GIVEN:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when"
            " (re-)joining."
        )


def _check_not_empty(text: str | None, name: str) -> None:
    if text is not None and not text.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


# -- leaving -----------------------------------------------------------------------------


def _leave(
    shard: GroupShard, request: ConsumerGroupHeartbeatRequest
) -> tuple[ConsumerGroupHeartbeatResponse, list[GroupRecord]]:
    group = shard.groups.get(request.group_id)
    if not isinstance(group, ConsumerGroup):
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
    member = group.find_member(request.member_id, request.instance_id)
    if request.member_epoch == LEAVING_STATIC:
        records = member_removal.leave_for_restart(group, member)
    else:
        records = member_removal.remove(group, [member])
    response = ConsumerGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch
    )
    return response, records


def _not_found(group_id: str) -> ApiError:
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")


# -- joining and staying -----------------------------------------------------------------


def _stay(
    shard: GroupShard, request: ConsumerGroupHeartbeatRequest, client: Client
) -> tuple[ConsumerGroupHeartbeatResponse, list[GroupRecord]]:
    group, records = _group_of(shard, request)
    owned = _owned(request)
    update = _member_update(group, request, owned)
    update.set_metadata(_described(update.metadata, request, client))
    update.assign_target()
    update.reconcile(owned)
    if records:
        migration.ask_to_rejoin(shard.groups.get(request.group_id))
    member = group.members.get(update.member_id)
    if member is not None and group.is_live:
        sessions.keep_alive(group, member)
    response = _response(group, update.member_id, update.current.epoch, update.epoch)
    if _is_full(request) or update.has_other_partitions:
        response.assignment = _assignment(update.current.assigned)
    return response, records + update.records


def _group_of(
    shard: GroupShard, request: ConsumerGroupHeartbeatRequest
) -> tuple[ConsumerGroup, list[GroupRecord]]:
    """Return the group, and the records that convert it if it was a classic group."""
    group = shard.groups.get(request.group_id)
    if isinstance(group, ConsumerGroup):
        return group, []
    if request.member_epoch != JOINING:
        raise _not_found(request.group_id)
    if group is None:
        return ConsumerGroup(shard, request.group_id), []
    return migration.upgrade(shard, group)


def _member_update(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, owned: Partitions | None
) -> MemberUpdate:
    """Return the update of the member that sends the heartbeat. Raise ApiError if it is fenced."""
    instance_id, member_id = request.instance_id, request.member_id
    if request.member_epoch != JOINING:
        member = group.find_member(member_id, instance_id)
        check_epoch(member, request.member_epoch, owned)
        return MemberUpdate(group, member_id)
    known_id = None if instance_id is None else group.static_members.get(instance_id)
    if not member_id:
        member_id = uuid_to_text(group.shard.broker.ports.random.uuid())
    if known_id in (None, member_id):
        check_room(group, member_id)
        return MemberUpdate(group, member_id)
    replaced = group.members[known_id]
    if replaced.classic is None and replaced.current.epoch != LEAVING_STATIC:
        raise ApiError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join: the instance"
            f" id is still that of member {known_id}",
        )
    return MemberUpdate(group, member_id, replaced)


def check_room(group: ConsumerGroup, member_id: str) -> None:
    """Raise GROUP_MAX_SIZE_REACHED if there may not be one more member."""
    limit = group.shard.broker.config.consumer_groups.group_consumer_max_size
    if len(group.members) >= limit and member_id not in group.members:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {limit} members.",
        )


def check_epoch(member: ConsumerMember, epoch: int, owned: Partitions | None) -> None:
    """Raise FENCED_MEMBER_EPOCH if the member is in another epoch than its record says.

    It may be one epoch behind if it did not get the last response. Then it must say what it
    owns, and own nothing that was not assigned to it.
    """
    current = member.current
    if epoch == current.epoch:
        return
    if epoch == current.previous_epoch and is_subset(owned, current.assigned):
        return
    compared = "greater" if epoch > current.epoch else "smaller"
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {compared} member epoch ({epoch}) than the one known by"
        f" the group coordinator ({current.epoch}). The member must abandon all its partitions and"
        " rejoin.",
    )


def _described(
    old: ConsumerGroupMemberMetadataValue, request: ConsumerGroupHeartbeatRequest, client: Client
) -> ConsumerGroupMemberMetadataValue:
    """Return the member's metadata. What the request leaves out stays as it was."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout
    return ConsumerGroupMemberMetadataValue(
        instance_id=old.instance_id if request.instance_id is None else request.instance_id,
        rack_id=old.rack_id if request.rack_id is None else request.rack_id,
        client_id=client.client_id,
        client_host=client.client_host,
        subscribed_topic_names=old.subscribed_topic_names if names is None else sorted(set(names)),
        subscribed_topic_regex=old.subscribed_topic_regex if regex is None else regex or None,
        rebalance_timeout_ms=old.rebalance_timeout_ms if timeout_ms == _NOT_GIVEN else timeout_ms,
        server_assignor=(
            old.server_assignor if request.server_assignor is None else request.server_assignor
        ),
    )


def _owned(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    if request.topic_partitions is None:
        return None
    return from_pairs((topic.topic_id, topic.partitions) for topic in request.topic_partitions)


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return True if the member sends all its fields, as after an error."""
    return request.member_epoch == JOINING or (
        request.rebalance_timeout != _NOT_GIVEN
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        and request.topic_partitions is not None
    )


def _response(
    group: ConsumerGroup, member_id: str, member_epoch: int, group_epoch: int
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=member_epoch,
        heartbeat_interval=sessions.next_heartbeat_ms(group, group_epoch),
    )


def _assignment(assigned: EpochPartitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            ResponseTopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in assigned.items()
        ]
    )
