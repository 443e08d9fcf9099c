"""ListOffsets, versions 1 to 11: earliest, latest, by time, largest timestamp, local (KIP-79)."""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.broker.timestamp_lookups import TimestampLookups
from ottla.log.log import Log
from ottla.log.record_search import RecordSearch
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps, count_in_steps
from ottla.replication.partition import Partition
from ottla.replication.partition_leader import PartitionLeader
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_FIRST_VERSION = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_FIRST_OFFSET_NOT_AVAILABLE = 5
_NOTHING = (-1, -1, -1)
_Place: TypeAlias = tuple[str, ListOffsetsPartition]
"""A partition that was asked for: the name of its topic, and what the request says."""


def handle(
    node: Node, request: ListOffsetsRequest, context: RequestContext
) -> Steps[ListOffsetsResponse | None]:
    """Return the offset that was asked for, for each partition."""
    times = yield from count_in_steps(
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    )
    answers: dict[tuple[str, int], ListOffsetsPartitionResponse] = {}
    level, version = request.isolation_level, context.version

    def look_up(place: _Place, search: RecordSearch) -> None:
        topic, partition = place
        answer = _answer(node, topic, partition, level, version, search)
        answers[topic, partition.partition_index] = answer

    def refuse(place: _Place, code: ErrorCode) -> None:
        topic, index = place[0], place[1].partition_index
        answers[topic, index] = _refusal(index, code)

    def answer_of(topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        index = asked.partition_index
        found = answers.get((topic, index))
        return _refusal(index, ErrorCode.INVALID_REQUEST) if found is None else found

    def of_topic(topic: ListOffsetsTopic) -> ListOffsetsTopicResponse:
        return ListOffsetsTopicResponse(
            name=topic.name, partitions=LazyList(partial(answer_of, topic.name), topic.partitions)
        )

    def response() -> ListOffsetsResponse:
        return ListOffsetsResponse(topics=LazyList(of_topic, request.topics))

    places = (
        (topic.name, partition)
        for topic in request.topics
        for partition in topic.partitions
        if times[topic.name, partition.partition_index] == 1
    )
    lookups = TimestampLookups(node, places, look_up, refuse)
    if (yield from lookups.run()):
        return response()
    lookups.answer_later(context.defer(), response)
    return None


def refuse(
    request: ListOffsetsRequest, error: ApiError, context: RequestContext
) -> ListOffsetsResponse:
    """Return the error for every partition."""
    return ListOffsetsResponse(
        topics=LazyList(
            lambda topic: ListOffsetsTopicResponse(
                name=topic.name,
                partitions=LazyList(
                    lambda partition: _refusal(partition.partition_index, error.code),
                    topic.partitions,
                ),
            ),
            request.topics,
        )
    )


def _answer(
    node: Node,
    topic: str,
    asked: ListOffsetsPartition,
    isolation_level: int,
    version: int,
    search: RecordSearch,
) -> ListOffsetsPartitionResponse:
    index = asked.partition_index
    try:
        partition = node.topics.partition_named(topic, index)
        partition.check_leader_epoch(asked.current_leader_epoch)
        leader = partition.as_leader()
        try:
            found = _find(node, leader, asked.timestamp, isolation_level, version, search)
        except OSError as error:
            raise ApiError(*node.storage_failed(partition, error)) from error
    except ApiError as error:
        if error.code == ErrorCode.OFFSET_NOT_AVAILABLE and version < _FIRST_OFFSET_NOT_AVAILABLE:
            return _refusal(index, ErrorCode.LEADER_NOT_AVAILABLE)
        return _refusal(index, error.code)
    offset, timestamp, leader_epoch = found
    return ListOffsetsPartitionResponse(
        partition_index=index, timestamp=timestamp, offset=offset, leader_epoch=leader_epoch
    )


def _refusal(index: int, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=index, error_code=code, timestamp=-1, offset=-1, leader_epoch=-1
    )


def _find(
    node: Node,
    leader: PartitionLeader,
    timestamp: int,
    isolation_level: int,
    version: int,
    search: RecordSearch,
) -> tuple[int, int, int]:
    """Return the offset, timestamp and leader epoch that were asked for.

    A new leader does not know at first how much is committed. Until it knows, offsets that may be
    smaller than those of the previous leader are not returned (KIP-207).
    """
    partition = leader.partition
    log = partition.online_log()
    if version < _FIRST_VERSION.get(timestamp, 0) or timestamp < EARLIEST_PENDING_UPLOAD:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    end = log.last_stable_offset if isolation_level else log.high_watermark
    knows_end = leader.start_offset <= log.high_watermark
    if timestamp == LATEST:
        if not knows_end:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return end, -1, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset if timestamp == EARLIEST else log.local_log_start_offset
        return start, -1, partition.epoch_for_offset(start)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _copied(partition, log, timestamp)
    if timestamp == MAX_TIMESTAMP:
        found = log.max_timestamp(search)
    elif log.log_start_offset < log.local_log_start_offset:
        from ottla.broker.remote_tier.timestamp_search import find_by_time

        found = find_by_time(node, partition, log, timestamp, search)
    else:
        found = log.offset_for_timestamp(timestamp, search)
    if found is None or found[0] < end:
        return _NOTHING if found is None else found
    if not knows_end:
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
    return _NOTHING


def _copied(partition: Partition, log: Log, timestamp: int) -> tuple[int, int, int]:
    """Return the last offset that the remote tier has, or the first that waits to be copied."""
    offset = log.highest_remote_offset
    if not log.config.remote_storage_enable:
        return _NOTHING
    if timestamp == EARLIEST_PENDING_UPLOAD:
        offset = max(offset + 1, log.log_start_offset)
    return _NOTHING if offset < 0 else (offset, -1, partition.epoch_for_offset(offset))
