"""ListGroups, DescribeGroups and DeleteGroups (KIP-518, KIP-848)."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import Final

from ottla.coordinator.groups.group_shard import GroupShard
from ottla.coordinator.groups.record_serde import GroupRecord
from ottla.coordinator.runtime.shard_runtime import ShardRuntime
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps
from ottla.wire.messages.describe_groups import DescribedGroup
from ottla.wire.messages.list_groups import ListedGroup

DEAD = "Dead"
_GROUPS_A_STEP: Final = 100
_OFFSETS_A_STEP: Final = 500


def list_groups(
    shard: GroupShard, states: Collection[str], types: Collection[str]
) -> Steps[list[ListedGroup]]:
    """Return the groups with one of the states and types, given in lower case. Empty means all."""
    listed = []
    for number, group in enumerate(list(shard.groups.values())):
        if (not states or group.state_name.lower() in states) and (
            not types or group.TYPE.lower() in types
        ):
            listed.append(
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type_name,
                    group_state=group.state_name,
                    group_type=group.TYPE.value,
                )
            )
        if not number % _GROUPS_A_STEP:
            yield
    return listed


def describe_group(shard: GroupShard, group_id: str) -> Steps[DescribedGroup]:
    """Return a group with its members. A group that does not exist is dead."""
    group = shard.groups.get(group_id)
    try:
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return (yield from group.describe())
    except ApiError as error:
        return DescribedGroup(
            group_id=group_id,
            group_state=DEAD,
            error_code=error.code,
            error_message=error.message,
        )


def delete_group(runtime: ShardRuntime[GroupShard], group_id: str) -> Steps[None]:
    """Delete an empty group and its offsets, the group last. Raise ApiError if it is in use."""
    shard = runtime.shard
    if group_id not in shard.groups:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
    while runtime.is_active and (group := shard.groups.get(group_id)) is not None:
        group.check_delete()
        offsets = islice(shard.offsets.of(group_id), _OFFSETS_A_STEP)
        records: list[GroupRecord] = [(key, None) for key, _ in offsets]
        if len(records) < _OFFSETS_A_STEP:
            records += [(key, None) for key in shard.offsets.pending_of(group_id)]
            runtime.write_in_parts(records + group.tombstones())
            return
        runtime.write_in_parts(records)
        yield
