"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords against what clients know."""

from __future__ import annotations

from typing import Final

from ottla.model.errors import ErrorCode
from ottla.sim.judges.conditions import Conditions
from ottla.sim.judges.retention import check_start, may_have_moved
from ottla.sim.model.cluster import ClusterModel, Place
from ottla.sim.network.exchange import Exchange, Violation
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
)
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def explains(place: Place | None, code: int, name: str, index: int, conditions: Conditions) -> bool:
    """Return whether the partition is missing, or its disk has failed, if the code says so.

    A deletion takes effect before its reply.
    """
    if place is None:
        return code == _UNKNOWN
    if code == _UNKNOWN:
        return conditions.is_being_deleted(name, place.topic.topic_id)
    return code == ErrorCode.KAFKA_STORAGE_ERROR and conditions.may_fail(name, index)


def judge_list_offsets(model: ClusterModel, exchange: Exchange, conditions: Conditions) -> None:
    """Check the offsets a client was told."""
    request, reply = exchange.request, exchange.reply
    assert isinstance(request, ListOffsetsRequest)
    assert isinstance(reply, ListOffsetsResponse)
    for asked_topic, topic in zip(request.topics, reply.topics, strict=True):
        for asked, answer in zip(asked_topic.partitions, topic.partitions, strict=True):
            place = model.place(topic.name, answer.partition_index)
            if answer.error_code:
                if not explains(
                    place, answer.error_code, topic.name, answer.partition_index, conditions
                ):
                    raise Violation(f"{exchange!r}: answered {answer}")
            elif place is None:
                raise Violation(f"{exchange!r}: {topic.name} has no {answer.partition_index}")
            else:
                _judge_offset(place, asked.timestamp, answer, conditions)


def _judge_offset(
    place: Place, timestamp: int, answer: ListOffsetsPartitionResponse, conditions: Conditions
) -> None:
    partition, offset = place.partition, answer.offset
    if timestamp == LATEST:
        if not partition.end <= offset <= partition.end + partition.open_records:
            raise Violation(f"{partition.name} ends at {partition.end}, told {offset}")
    elif timestamp == EARLIEST:
        check_start(place, offset, conditions)
    elif timestamp == MAX_TIMESTAMP:
        _judge_max_timestamp(place, answer, conditions)
    else:
        _judge_by_time(place, timestamp, answer, conditions)


def _judge_by_time(
    place: Place, timestamp: int, answer: ListOffsetsPartitionResponse, conditions: Conditions
) -> None:
    """Check that no record that must be there, and comes before the answer, is late enough."""
    partition = place.partition
    if answer.offset >= 0 and answer.timestamp < timestamp:
        raise Violation(f"{partition.name}: asked for {timestamp}, told {answer}")
    stop = answer.offset if answer.offset >= 0 else partition.end
    for offset, at in _timestamps(place):
        if offset == answer.offset and at != answer.timestamp:
            raise Violation(f"{partition.name}: {offset} has the timestamp {at}, told {answer}")
        if offset < stop and at >= timestamp and not may_have_moved(place, offset + 1, conditions):
            raise Violation(f"{partition.name}: {offset} of {at} comes before {answer}")


def _judge_max_timestamp(
    place: Place, answer: ListOffsetsPartitionResponse, conditions: Conditions
) -> None:
    """Check that no record that must be there is newer than the answer."""
    for offset, at in _timestamps(place):
        is_newer = answer.offset >= 0 and at > answer.timestamp
        if is_newer and not may_have_moved(place, offset + 1, conditions):
            raise Violation(f"{place.partition.name}: {offset} is of {at}, told {answer}")


def _timestamps(place: Place) -> list[tuple[int, int]]:
    """Return offset and timestamp of the records that are known to be there."""
    partition = place.partition
    return [
        (entry.base_offset + index, at)
        for entry in partition.in_range(partition.start, partition.end)
        for index, at in enumerate(entry.timestamps)
        if partition.start <= entry.base_offset + index < partition.end
    ]


def judge_epochs(model: ClusterModel, exchange: Exchange, conditions: Conditions) -> None:
    """Check where epochs ended."""
    request, reply = exchange.request, exchange.reply
    assert isinstance(request, OffsetForLeaderEpochRequest)
    assert isinstance(reply, OffsetForLeaderEpochResponse)
    for asked_topic, topic in zip(request.topics, reply.topics, strict=True):
        for asked, answer in zip(asked_topic.partitions, topic.partitions, strict=True):
            place = model.place(topic.topic, answer.partition)
            if answer.error_code:
                if not explains(
                    place, answer.error_code, topic.topic, answer.partition, conditions
                ):
                    raise Violation(f"{exchange!r}: answered {answer}")
            elif place is None:
                raise Violation(f"{exchange!r}: {topic.topic} has no {answer.partition}")
            else:
                _judge_epoch(place, asked.leader_epoch, answer, conditions)


def _judge_epoch(place: Place, epoch: int, answer: EpochEndOffset, conditions: Conditions) -> None:
    if answer.leader_epoch < 0 or may_have_moved(place, answer.end_offset, conditions):
        return
    where = f"{place.partition.name}: epoch {epoch} ends with {answer}"
    if answer.leader_epoch > epoch:
        raise Violation(where)
    partition = place.partition
    for entry in partition.in_range(partition.highest_start, partition.end):
        if 0 <= entry.leader_epoch <= epoch and entry.next_offset > answer.end_offset:
            raise Violation(f"{where}, yet {entry.sent} of epoch {entry.leader_epoch} follows")
        start = max(entry.base_offset, partition.highest_start)
        if entry.leader_epoch > epoch and start < answer.end_offset:
            raise Violation(f"{where}, yet {entry.sent} has epoch {entry.leader_epoch}")


def judge_delete_records(model: ClusterModel, exchange: Exchange, conditions: Conditions) -> None:
    """Check a deletion, and move the log start."""
    request, reply = exchange.request, exchange.reply
    assert isinstance(request, DeleteRecordsRequest)
    assert isinstance(reply, DeleteRecordsResponse)
    for asked_topic, topic in zip(request.topics, reply.topics, strict=True):
        for asked, answer in zip(asked_topic.partitions, topic.partitions, strict=True):
            place = model.place(topic.name, answer.partition_index)
            if answer.error_code:
                _judge_refusal(exchange, topic.name, place, asked.offset, answer, conditions)
            elif place is None:
                raise Violation(f"{exchange!r}: {topic.name} has no {answer.partition_index}")
            else:
                _deleted(place, asked.offset, answer, conditions)


def _deleted(
    place: Place, asked: int, answer: DeleteRecordsPartitionResult, conditions: Conditions
) -> None:
    partition = place.partition
    most = partition.end + partition.open_records
    if not max(partition.start, asked) <= answer.low_watermark <= most:
        raise Violation(f"{partition.name}: deleted up to {asked}, told {answer}")
    if asked >= 0:
        partition.move_start(asked)
        check_start(place, answer.low_watermark, conditions)
    else:
        partition.move_start(answer.low_watermark)


def _judge_refusal(
    exchange: Exchange,
    name: str,
    place: Place | None,
    asked: int,
    answer: DeleteRecordsPartitionResult,
    conditions: Conditions,
) -> None:
    code = answer.error_code
    if explains(place, code, name, answer.partition_index, conditions):
        return
    if place is not None:
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and (asked > place.partition.end or asked < -1):
            return
        compacted = "delete" not in place.topic.setting("cleanup.policy", "delete")
        if code == ErrorCode.POLICY_VIOLATION and compacted:
            return
    raise Violation(f"{exchange!r}: answered {answer}")
