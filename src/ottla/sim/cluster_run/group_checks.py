"""Compares what coordinators answer with the history of groups."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.sim.cluster_run.group_history import GroupHistory
from ottla.sim.cluster_run.group_members import LEAVE_EPOCH, partitions_of
from ottla.sim.network.exchange import Exchange
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
    ResponseTopicPartitions,
)
from ottla.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def take_answer(
    history: GroupHistory, exchange: Exchange, now_ms: float, *, is_current: bool
) -> None:
    """Take an answer that a coordinator has decided.

    One that does not know yet that it was replaced (not `is_current`) may tell old offsets. It
    cannot commit anything.
    """
    request, reply = exchange.request, exchange.reply
    if isinstance(request, SyncGroupRequest):
        assert isinstance(reply, SyncGroupResponse)
        if not reply.error_code:
            history.synchronized(request.group_id, request.generation_id)
            owned = [f"{name}-{index}" for name, index in partitions_of(reply.assignment)]
            history.own(request.group_id, request.generation_id, request.member_id, owned)
    elif isinstance(request, ConsumerGroupHeartbeatRequest):
        assert isinstance(reply, ConsumerGroupHeartbeatResponse)
        _take_heartbeat(history, request, reply, exchange.sent_ms, now_ms)
    elif isinstance(request, OffsetCommitRequest):
        assert isinstance(reply, OffsetCommitResponse)
        if not reply.topics[0].partitions[0].error_code:
            asked = request.topics[0].partitions[0]
            key = request.group_id, request.topics[0].name, asked.partition_index
            generation = request.generation_id_or_member_epoch
            history.committed(key, generation, asked.committed_offset, now_ms)
    elif isinstance(request, OffsetFetchRequest) and is_current:
        assert isinstance(reply, OffsetFetchResponse)
        if not reply.error_code and not reply.topics[0].partitions[0].error_code:
            told = reply.topics[0].partitions[0]
            key = request.group_id, reply.topics[0].name, told.partition_index
            history.told(key, told.committed_offset, exchange.sent_ms)


def _take_heartbeat(
    history: GroupHistory,
    request: ConsumerGroupHeartbeatRequest,
    reply: ConsumerGroupHeartbeatResponse,
    sent_ms: float,
    now_ms: float,
) -> None:
    group, member = request.group_id, request.member_id
    if reply.error_code or request.member_epoch == LEAVE_EPOCH:
        history.release(group, member)  # a member starts over after most errors
        return
    if request.topic_partitions is not None:
        history.release(group, member, _names(request.topic_partitions))
    if reply.assignment is None:
        history.still_hold(group, member, sent_ms)
        return
    owned = _names(reply.assignment.topic_partitions)
    history.own(group, reply.member_epoch, member, owned)
    history.hold(group, member, owned, sent_ms, now_ms)


def _names(topics: Sequence[RequestTopicPartitions | ResponseTopicPartitions]) -> list[str]:
    return [f"{topic.topic_id.hex()}-{index}" for topic in topics for index in topic.partitions]
