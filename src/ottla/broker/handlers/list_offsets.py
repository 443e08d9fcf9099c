"""ListOffsets, versions 1 to 11: earliest, latest, by time, largest timestamp, local (KIP-79)."""

from __future__ import annotations

from collections import Counter

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.log.log import Log
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
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
_NOTHING = (-1, -1, -1)


def handle(node: Node, request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """Return the offset that was asked for, for each partition."""
    asked = Counter(
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    )
    twice = {partition for partition, times in asked.items() if times > 1}
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _refusal(partition.partition_index, ErrorCode.INVALID_REQUEST)
                    if (topic.name, partition.partition_index) in twice
                    else _answer(
                        node, topic.name, partition, request.isolation_level, context.version
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def refuse(
    request: ListOffsetsRequest, error: ApiError, context: RequestContext
) -> ListOffsetsResponse:
    """Return the error for every partition."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _refusal(partition.partition_index, error.code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _answer(
    node: Node, topic: str, asked: ListOffsetsPartition, isolation_level: int, version: int
) -> ListOffsetsPartitionResponse:
    index = asked.partition_index
    try:
        partition = node.topics.partition_named(topic, index)
        partition.check_leader_epoch(asked.current_leader_epoch)
        partition.as_leader()
        log = partition.online_log()
        try:
            found = _find(log, asked.timestamp, isolation_level, version)
        except OSError as error:
            raise ApiError(*node.storage_failed(partition, error)) from error
    except ApiError as error:
        return _refusal(index, error.code)
    offset, timestamp, leader_epoch = found
    return ListOffsetsPartitionResponse(
        partition_index=index, timestamp=timestamp, offset=offset, leader_epoch=leader_epoch
    )


def _refusal(index: int, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=index, error_code=code, timestamp=-1, offset=-1, leader_epoch=-1
    )


def _find(log: Log, timestamp: int, isolation_level: int, version: int) -> tuple[int, int, int]:
    """Return the offset, timestamp and leader epoch that were asked for."""
    if version < _FIRST_VERSION.get(timestamp, 0) or timestamp < EARLIEST_PENDING_UPLOAD:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    end = log.last_stable_offset if isolation_level else log.high_watermark
    if timestamp == LATEST:
        return end, -1, log.leader_epochs.latest_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return start, -1, log.leader_epochs.epoch_for_offset(start)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _NOTHING  # no tier: nothing was uploaded, nothing waits for it
    found = (
        log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    )
    return found if found is not None and found[0] < end else _NOTHING
