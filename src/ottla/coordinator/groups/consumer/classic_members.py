"""Members of a consumer group that speak the classic protocol (KIP-848, migration).

The member epoch is what such a member knows as its generation, and the broker assigns. A
JoinGroup takes the steps of a heartbeat, and the SyncGroup after it fetches the assignment. A
Heartbeat can only tell the member to join again. Joining and syncing in time replaces the
rebalance timeout.
"""

from __future__ import annotations

from ottla.coordinator.groups.classic.member import protocols_of, rebalance_timeout_of
from ottla.coordinator.groups.classic.subscribed_topics import CONSUMER_PROTOCOL_TYPE
from ottla.coordinator.groups.client import Client
from ottla.coordinator.groups.consumer import consumer_protocol, member_removal, migration, sessions
from ottla.coordinator.groups.consumer.current_assignment import MemberState
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.consumer.heartbeat import check_room
from ottla.coordinator.groups.consumer.member import ConsumerMember
from ottla.coordinator.groups.consumer.member_update import MemberUpdate
from ottla.coordinator.groups.consumer.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)
from ottla.coordinator.groups.record_serde import GroupRecord
from ottla.coordinator.runtime.reply import Reply
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.codec import DecodeError
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

FIRST_MEMBER_ID_REQUIRED = 4

# -- JoinGroup ---------------------------------------------------------------------------


def join(
    group: ConsumerGroup, request: JoinGroupRequest, client: Client, reply: Reply
) -> list[GroupRecord]:
    """Join as Group.join says. Errors are sent to the reply."""
    member_id = request.member_id
    try:
        if not member_id:
            prefix = request.group_instance_id or client.client_id
            member_id = group.shard.new_member_id(prefix)
        response, records = _join(group, member_id, request, client)
    except ApiError as error:
        # As in Kafka, only a member that must come back is told the id that it has to use.
        known_id = member_id if error.code == ErrorCode.MEMBER_ID_REQUIRED else ""
        response, records = JoinGroupResponse(error_code=error.code, member_id=known_id), []
    group.shard.answer(reply, response)
    return records


def _join(
    group: ConsumerGroup, member_id: str, request: JoinGroupRequest, client: Client
) -> tuple[JoinGroupResponse, list[GroupRecord]]:
    instance_id = request.group_instance_id
    if instance_id is None or instance_id not in group.static_members:
        check_room(group, member_id)
    _check_protocols(group, request)
    if not request.member_id and instance_id is None and client.version >= FIRST_MEMBER_ID_REQUIRED:
        raise ApiError(ErrorCode.MEMBER_ID_REQUIRED)
    subscription = _subscription_of(request)
    owned = consumer_protocol.by_id(subscription.owned_partitions, group.shard.broker.image)
    update = _member_update(group, member_id, request)
    if update.old is None and owned:
        # Its session had expired, and others may own what it believes to own.
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    update.set_metadata(_described(update, subscription, request, client))
    update.assign_target()
    update.reconcile(owned)
    response = JoinGroupResponse(
        member_id=member_id,
        generation_id=update.current.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=request.protocols[0].name,
    )
    if migration.can_downgrade_with(update):
        response.generation_id = group.epoch
        return response, migration.downgrade_with(update)
    member = group.members.get(member_id)
    if member is not None:
        _expect_sync(group, member)
    return response, update.records


def _member_update(group: ConsumerGroup, member_id: str, request: JoinGroupRequest) -> MemberUpdate:
    """Return the update of the member that joins. A member with an id must be known."""
    instance_id = request.group_instance_id
    if instance_id is None:
        return MemberUpdate(group, member_id)
    if request.member_id:
        group.find_member(member_id, instance_id)
        return MemberUpdate(group, member_id)
    known_id = group.static_members.get(instance_id)
    return MemberUpdate(group, member_id, None if known_id is None else group.members[known_id])


def _check_protocols(group: ConsumerGroup, request: JoinGroupRequest) -> None:
    """Check that the member could be in a classic group with the others of that protocol."""
    member_counts = group.member_counts
    supported = request.protocol_type == CONSUMER_PROTOCOL_TYPE and any(
        member_counts.classic_protocols[protocol.name] == member_counts.classic
        for protocol in request.protocols
    )
    if not supported:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _subscription_of(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """Return the member's subscription, which is the same in all its protocols."""
    try:
        return consumer_protocol.read_subscription(request.protocols[0].metadata)
    except DecodeError as error:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from error


def _described(
    update: MemberUpdate,
    subscription: ConsumerProtocolSubscription,
    request: JoinGroupRequest,
    client: Client,
) -> ConsumerGroupMemberMetadataValue:
    old = update.metadata
    return ConsumerGroupMemberMetadataValue(
        instance_id=request.group_instance_id or old.instance_id,
        rack_id=subscription.rack_id or old.rack_id,
        client_id=client.client_id,
        client_host=client.client_host,
        subscribed_topic_names=sorted(set(subscription.topics)),
        rebalance_timeout_ms=rebalance_timeout_of(request, client.version),
        classic_member_metadata=ClassicMemberMetadata(
            session_timeout_ms=request.session_timeout,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=metadata)
                for name, metadata in protocols_of(request).items()
            ],
        ),
    )


def _expect_sync(group: ConsumerGroup, member: ConsumerMember) -> None:
    """Give the member its rebalance timeout to sync. A new member gets it with its record."""
    sessions.keep_alive(group, member)
    sessions.stop_waiting(member)
    sessions.expect(group, member)


# -- SyncGroup ---------------------------------------------------------------------------


def sync(group: ConsumerGroup, request: SyncGroupRequest, reply: Reply) -> list[GroupRecord]:
    """Sync as Group.sync says. Errors are sent to the reply."""
    try:
        response = _sync(group, request)
    except ApiError as error:
        response = SyncGroupResponse(error_code=error.code)
    group.shard.answer(reply, response)
    return []


def _sync(group: ConsumerGroup, request: SyncGroupRequest) -> SyncGroupResponse:
    member = _find(group, request.member_id, request.group_instance_id)
    assert member.classic is not None
    _check_generation(member, request.generation_id)
    protocol = member.classic.supported_protocols[0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or (
        request.protocol_name not in (None, protocol.name)
    ):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.epoch > member.current.epoch and not _must_revoke(member):
        sessions.expect(group, member)
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
    sessions.stop_waiting(member)
    sessions.keep_alive(group, member)
    return SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=consumer_protocol.write_assignment(
            {topic_id: frozenset(epochs) for topic_id, epochs in member.current.assigned.items()},
            consumer_protocol.version_for(protocol.metadata),
            group.shard.broker.image,
        ),
    )


def _find(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    member = group.find_member(member_id, instance_id)
    if member.classic is None:
        raise ApiError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol."
        )
    return member


def _check_generation(member: ConsumerMember, generation_id: int) -> None:
    if generation_id != member.current.epoch:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)


def _must_revoke(member: ConsumerMember) -> bool:
    return member.current.state is MemberState.UNREVOKED_PARTITIONS


# -- Heartbeat ---------------------------------------------------------------------------


def heartbeat(group: ConsumerGroup, request: HeartbeatRequest) -> ErrorCode:
    """Handle a heartbeat as Group.heartbeat says."""
    member = _find(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    sessions.keep_alive(group, member)
    if _must_rejoin(group, member):
        sessions.expect(group, member)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _must_rejoin(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return True if there is something new that the member only gets by joining again."""
    current = member.current
    if current.epoch < group.epoch or _must_revoke(member):
        return True
    return current.state is MemberState.UNRELEASED_PARTITIONS and not _waits(group, member)


def _waits(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return True if a partition of the member's target still belongs to another member."""
    for topic_id, wanted in group.target_of(member.member_id).partitions.items():
        owners = group.owners.get(topic_id, {})
        if any(owners.get(number, member.member_id) != member.member_id for number in wanted):
            return True
    return False


# -- LeaveGroup --------------------------------------------------------------------------


def leave(group: ConsumerGroup, request: LeaveGroupRequest, reply: Reply) -> list[GroupRecord]:
    """Leave as Group.leave says. Members of either protocol may be named, and more than once."""
    gone: dict[str, ConsumerMember] = {}
    results = [_leave(group, identity, gone) for identity in request.members]
    group.shard.answer(reply, LeaveGroupResponse(members=results))
    return member_removal.remove(group, list(gone.values())) if gone else []


def _leave(
    group: ConsumerGroup, identity: MemberIdentity, gone: dict[str, ConsumerMember]
) -> MemberResponse:
    code = ErrorCode.NONE
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if not member_id and instance_id is not None:
        # An administrator can remove a static member without knowing its member id.
        member_id = group.static_members.get(instance_id, "")
    try:
        gone[member_id] = group.find_member(member_id, instance_id)
    except ApiError as error:
        code = error.code
    return MemberResponse(
        member_id=identity.member_id, group_instance_id=instance_id, error_code=code
    )
