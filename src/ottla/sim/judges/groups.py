"""Groups: do members get what leaders and the coordinator decided, and offsets what was committed?

Error answers are not judged: what they say about offsets and partitions is that nobody knows.
"""

from __future__ import annotations

from ottla.sim.judges.conditions import Conditions
from ottla.sim.model.cluster import ClusterModel
from ottla.sim.model.groups import Commit, GroupsModel, HeldPartitions, OffsetKey, OffsetModel
from ottla.sim.network.exchange import Exchange, Violation
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
    ResponseTopicPartitions,
)
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

LEAVE_EPOCH = -1
_UNKNOWN = 1 << 62


# -- classic groups ----------------------------------------------------------------------


def judge_join(model: ClusterModel, exchange: Exchange, conditions: Conditions) -> None:
    """Check the generation and its leader; only the leader is told who the members are."""
    request, reply = exchange.request, exchange.reply
    assert isinstance(request, JoinGroupRequest)
    assert isinstance(reply, JoinGroupResponse)
    if reply.error_code:
        return
    model.groups.join(request.group_id, reply.generation_id, reply.leader)
    names = [member.member_id for member in reply.members]
    leads = reply.leader == reply.member_id
    if leads != bool(names) or (leads and reply.member_id not in names):
        raise Violation(f"{exchange!r}: {reply.leader} leads, told members {names}")


def judge_sync(model: ClusterModel, exchange: Exchange, conditions: Conditions) -> None:
    """Check that a member got its part of what its leader assigned in this generation."""
    request, reply = exchange.request, exchange.reply
    assert isinstance(request, SyncGroupRequest)
    assert isinstance(reply, SyncGroupResponse)
    if reply.error_code:
        return
    key = request.group_id, request.generation_id, request.member_id
    planned = model.groups.planned.get(key, [])
    if reply.assignment not in (b"", *planned):
        raise Violation(f"{exchange!r}: the leader assigned {planned}, told {reply.assignment!r}")
    model.groups.own(*key, partitions_of(reply.assignment))


def partitions_of(assignment: bytes) -> list[str]:
    """Return the partitions in an assignment of simulated leaders."""
    return assignment.decode().split(",") if assignment else []


# -- KIP-848 groups ----------------------------------------------------------------------


def judge_heartbeat(model: ClusterModel, exchange: Exchange, conditions: Conditions) -> None:
    """Check that a member was given nothing that another one may hold."""
    request, reply = exchange.request, exchange.reply
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    assert isinstance(reply, ConsumerGroupHeartbeatResponse)
    if reply.error_code:
        doubt_heartbeat(model, exchange)
        return
    if request.member_epoch == LEAVE_EPOCH:
        model.groups.members.get(request.group_id, {}).pop(request.member_id, None)
        return
    if reply.member_epoch < request.member_epoch:
        raise Violation(f"{exchange!r}: the epoch goes back to {reply.member_epoch}")
    member = _member(model.groups, request)
    member.heard_ms, member.epoch = conditions.monotonic_ms, reply.member_epoch
    if reply.assignment is not None:
        member.assign(_set_of(reply.assignment.topic_partitions))
    if request.topic_partitions is not None:
        member.report(_set_of(request.topic_partitions))
    _check_others(model.groups, request, member, conditions)


def _check_others(
    groups: GroupsModel,
    request: ConsumerGroupHeartbeatRequest,
    member: HeldPartitions,
    conditions: Conditions,
) -> None:
    """Check that nobody else holds what this member was given."""
    for name, other in groups.members[request.group_id].items():
        silent_ms = conditions.monotonic_ms - other.heard_ms
        if other is member or silent_ms >= conditions.member_timeout_ms:
            continue
        for partition in sorted(member.told):
            if other.holds(partition):
                raise Violation(
                    f"{request.group_id}: {partition[0].hex()[:6]}-{partition[1]} was given to"
                    f" {request.member_id} in epoch {member.epoch}, and {name} holds it"
                    f" since epoch {other.epoch}"
                )


def doubt_heartbeat(model: ClusterModel, exchange: Exchange) -> None:
    """Take note that what a heartbeat gave up may be somebody else's: its outcome is unknown."""
    request = exchange.request
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    if request.member_epoch <= 0:
        model.groups.members.get(request.group_id, {}).pop(request.member_id, None)
    elif request.topic_partitions is not None:
        owned = _set_of(request.topic_partitions)
        member = _member(model.groups, request)
        member.report(owned)
        member.told &= owned


def _member(groups: GroupsModel, request: ConsumerGroupHeartbeatRequest) -> HeldPartitions:
    members = groups.members.setdefault(request.group_id, {})
    if request.member_epoch == 0:
        members[request.member_id] = HeldPartitions()
    return members.setdefault(request.member_id, HeldPartitions())


def _set_of(
    topics: list[RequestTopicPartitions] | list[ResponseTopicPartitions],
) -> set[tuple[bytes, int]]:
    return {(topic.topic_id, partition) for topic in topics for partition in topic.partitions}


# -- offsets -----------------------------------------------------------------------------


def judge_commit(model: ClusterModel, exchange: Exchange, conditions: Conditions) -> None:
    """Take committed offsets; a member of an old generation must be refused."""
    request, reply = exchange.request, exchange.reply
    assert isinstance(request, OffsetCommitRequest)
    assert isinstance(reply, OffsetCommitResponse)
    codes = {
        (topic.name, answer.partition_index): answer.error_code
        for topic in reply.topics
        for answer in topic.partitions
    }
    generation_id = request.generation_id_or_member_epoch
    is_classic = request.group_id not in model.groups.members
    newest = model.groups.generation(request.group_id)
    if is_classic and 0 <= generation_id < newest and 0 in codes.values():
        raise Violation(f"{exchange!r}: accepted in generation {newest}")
    log_end = conditions.offsets_log_end(request.group_id)
    for key, offset in _committed(request):
        code = codes[key.topic, key.partition_index]
        commit = Commit(offset, log_end, acked=not code, refused=bool(code))
        model.groups.offsets.setdefault(key, OffsetModel()).commit(commit)


def doubt_commit(model: ClusterModel, exchange: Exchange) -> None:
    """Take note that nobody was told whether these offsets were committed."""
    request = exchange.request
    assert isinstance(request, OffsetCommitRequest)
    for key, offset in _committed(request):
        commit = Commit(offset, _UNKNOWN, acked=False)
        model.groups.offsets.setdefault(key, OffsetModel()).commit(commit)


def _committed(request: OffsetCommitRequest) -> list[tuple[OffsetKey, int]]:
    return [
        (
            OffsetKey(request.group_id, topic.name, partition.partition_index),
            partition.committed_offset,
        )
        for topic in request.topics
        for partition in topic.partitions
    ]


def judge_offset_fetch(model: ClusterModel, exchange: Exchange, conditions: Conditions) -> None:
    """Check that a group finds the offsets it committed last."""
    request, reply = exchange.request, exchange.reply
    assert isinstance(request, OffsetFetchRequest)
    assert isinstance(reply, OffsetFetchResponse)
    if reply.error_code:
        return
    for topic in reply.topics:
        for answer in topic.partitions:
            if answer.error_code:
                continue
            key = OffsetKey(request.group_id, topic.name, answer.partition_index)
            check_offset(model.groups, key, answer.committed_offset)


def check_offset(groups: GroupsModel, key: OffsetKey, offset: int) -> None:
    """Compare a fetched offset with what was committed, and learn from it."""
    offsets = groups.offsets.setdefault(key, OffsetModel())
    possible = offsets.possible()
    if offset not in possible:
        raise Violation(f"{key}: the offset is {offset}, it can only be {sorted(possible)}")
    offsets.see(offset)
