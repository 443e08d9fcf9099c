"""ListGroups, DescribeGroups and DeleteGroups (KIP-518, KIP-848)."""

from __future__ import annotations

from collections.abc import Collection

from ottla.coordinator.groups.group_shard import GroupShard
from ottla.coordinator.groups.record_serde import GroupRecord
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.describe_groups import DescribedGroup
from ottla.wire.messages.list_groups import ListedGroup

DEAD = "Dead"


def list_groups(
    shard: GroupShard, states: Collection[str], types: Collection[str]
) -> list[ListedGroup]:
    """Return the groups with one of the states and types, given in lower case. Empty means all."""
    return [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type_name,
            group_state=group.state_name,
            group_type=group.TYPE.value,
        )
        for group in shard.groups.values()
        if (not states or group.state_name.lower() in states)
        and (not types or group.TYPE.lower() in types)
    ]


def describe_group(shard: GroupShard, group_id: str) -> DescribedGroup:
    """Return a group with its members. A group that does not exist is dead."""
    group = shard.groups.get(group_id)
    try:
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group.describe()
    except ApiError as error:
        return DescribedGroup(
            group_id=group_id,
            group_state=DEAD,
            error_code=error.code,
            error_message=error.message,
        )


def delete_group(shard: GroupShard, group_id: str) -> list[GroupRecord]:
    """Return tombstones of an empty group and its offsets. Raise ApiError if it is in use."""
    group = shard.groups.get(group_id)
    if group is None:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
    group.check_delete()
    records: list[GroupRecord] = [(key, None) for key, _ in shard.offsets.of(group_id)]
    records += [(key, None) for key in shard.offsets.pending() if key.group == group_id]
    return records + group.tombstones()
