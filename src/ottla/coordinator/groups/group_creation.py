"""JoinGroup to a group of any type, or to one that is yet to be."""

from __future__ import annotations

from ottla.coordinator.groups.group import GroupType
from ottla.coordinator.groups.record_serde import GroupRecord
from ottla.coordinator.groups.records import GroupMetadataKey, GroupMetadataValue
from ottla.coordinator.runtime.broker import Client, Reply
from ottla.coordinator.runtime.shard_runtime import RuntimeState, ShardRuntime
from ottla.model.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse


def join_group(
    runtime: ShardRuntime, request: JoinGroupRequest, client: Client, reply: Reply
) -> None:
    """Join the group; a member that has no id yet makes it if need be."""
    shard = runtime.shard
    group = shard.groups.get(request.group_id)
    if group is None or (group.TYPE is not GroupType.CLASSIC and group.is_empty):
        if request.member_id:
            refusal = JoinGroupResponse(
                error_code=ErrorCode.UNKNOWN_MEMBER_ID, member_id=request.member_id
            )
            runtime.answer(reply, refusal)
            return
        former: list[GroupRecord] = [] if group is None else group.tombstones()
        runtime.finish([*former, _new_group(request.group_id, shard.broker.wall_ms)])
        if runtime.state is not RuntimeState.ACTIVE:
            runtime.answer(reply, JoinGroupResponse())
            return
        group = shard.groups[request.group_id]
    runtime.finish(group.join(request, client, reply))


def _new_group(group_id: str, now_ms: int) -> GroupRecord:
    return GroupMetadataKey(group=group_id), GroupMetadataValue(current_state_timestamp=now_ms)
