"""JoinGroup to a group that may not exist yet."""

from __future__ import annotations

from ottla.coordinator.groups.client import Client
from ottla.coordinator.groups.group import GroupType
from ottla.coordinator.groups.group_shard import GroupShard
from ottla.coordinator.groups.record_serde import GroupRecord
from ottla.coordinator.groups.records import GroupMetadataKey, GroupMetadataValue
from ottla.coordinator.runtime.reply import Reply
from ottla.coordinator.runtime.shard_runtime import RuntimeState, ShardRuntime
from ottla.model.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse


def join_or_create_group(
    runtime: ShardRuntime[GroupShard], request: JoinGroupRequest, client: Client, reply: Reply
) -> None:
    """Join a group of either type. A member without an id creates the group if need be."""
    shard = runtime.shard
    group = shard.groups.get(request.group_id)
    if group is None or (group.TYPE is not GroupType.CLASSIC and group.is_empty):
        if request.member_id:
            refusal = JoinGroupResponse(
                error_code=ErrorCode.UNKNOWN_MEMBER_ID, member_id=request.member_id
            )
            runtime.answer(reply, refusal)
            return
        tombstones: list[GroupRecord] = [] if group is None else group.tombstones()
        runtime.finish([*tombstones, _new_group(request.group_id, shard.broker.wall_ms)])
        if runtime.state is not RuntimeState.ACTIVE:
            runtime.answer(reply, JoinGroupResponse())
            return
        group = shard.groups[request.group_id]
    runtime.finish(group.join(request, client, reply))


def _new_group(group_id: str, now_ms: int) -> GroupRecord:
    return GroupMetadataKey(group=group_id), GroupMetadataValue(current_state_timestamp=now_ms)
