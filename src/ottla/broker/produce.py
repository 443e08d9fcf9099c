"""Produce: append each partition's batch, answer once the group commit has written it.

acks=0 gets no answer (a refused batch closes the connection, as in Kafka); acks=1 and
acks=all differ only when there are followers. Replies are built at once and stay in the
connection's `out`; if the commit fails they are rebuilt with the error before anything
is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import error
from typing import TYPE_CHECKING

from ottla.broker.connection import Connection
from ottla.broker.produce_codec import (
    FIRST_FLEXIBLE,
    FIRST_TOPIC_ID,
    Answers,
    PartitionResult,
    ProduceTopic,
    decode_flexible,
    decode_legacy,
    encode_produce_response,
    refused,
)
from ottla.model.errors import ApiError, ErrorCode
from ottla.replication.partition import Partition
from ottla.wire.primitives import DecodeError

if TYPE_CHECKING:
    from ottla.broker.node import Node

MIN_VERSION = 3
ADVERTISED_MIN_VERSION = 0  # as Kafka 4: older librdkafka takes it for support of codecs
MAX_VERSION = 13

SEQUENCE_ERRORS = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH)
"""What may be said because of a batch that is not committed, and does not hold if that fails."""

_new = tuple.__new__  # what a NamedTuple's constructor does, at half its price


class ProduceReply:
    """A reply that can still be taken back. `slot` is -1 when no answer is wanted."""

    __slots__ = ("answers", "connection", "correlation_id", "slot", "version")

    def __init__(
        self, connection: Connection, version: int, correlation_id: int, wanted: bool
    ) -> None:
        self.connection = connection
        self.version = version
        self.correlation_id = correlation_id
        self.answers: Answers = []
        self.slot = len(connection.out) if wanted else -1

    def refuse_all(self, topics: list[ProduceTopic], code: ErrorCode, message: str) -> None:
        """The request itself is not acceptable."""
        for key, partitions in topics:
            results = [refused(index, code, message) for index, _, _ in partitions]
            self.answers.append((key, results))

    def refuse(self, key: bytes, index: int, code: ErrorCode, message: str) -> None:
        """What was said about this partition does not hold: say it failed."""
        if self.slot < 0:
            self.connection.closing = True
            return
        for topic_key, results in self.answers:
            for position, result in enumerate(results):
                if topic_key == key and result.partition_index == index:
                    results[position] = refused(index, code, message)
        self.connection.out[self.slot] = encode_produce_response(
            self.version, self.correlation_id, self.answers
        )


def handle_produce(
    node: Node,
    connection: Connection,
    version: int,
    correlation_id: int,
    buffer: bytearray,
    view: memoryview,
    start: int,
    end: int,
) -> None:
    """Take one Produce request whose body is [start, end) of the receive buffer."""
    decode = decode_flexible if version >= FIRST_FLEXIBLE else decode_legacy
    try:
        transactional_id, acks, _, topics = decode(version, buffer, view, start, end)
    except (IndexError, error) as cause:
        raise DecodeError("the Produce request ends too early") from cause
    reply = ProduceReply(connection, version, correlation_id, acks != 0)
    if acks not in (1, -1, 0):
        reply.refuse_all(topics, ErrorCode.INVALID_REQUIRED_ACKS, "acks is 0, 1 or -1 (all)")
    elif transactional_id is not None:
        reply.refuse_all(
            topics,
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            "transactions are not supported by this broker",
        )
    else:
        hosted = node.topics
        find = hosted.partition_by_id if version >= FIRST_TOPIC_ID else hosted.partition_by_key
        _append(node, find, reply, acks, topics, buffer, view)
    answers = reply.answers
    if acks != 0:
        connection.out.append(encode_produce_response(version, correlation_id, answers))
    elif any(result.error for _, results in answers for result in results):
        connection.closing = True


def _append(
    node: Node,
    find: Callable[[bytes, int], Partition],
    reply: ProduceReply,
    acks: int,
    topics: list[ProduceTopic],
    buffer: bytearray,
    view: memoryview,
) -> None:
    """Queue each partition's batch, and say in the reply what becomes of it if all goes well."""
    answers = reply.answers
    for key, partitions in topics:
        results: list[PartitionResult] = []
        answers.append((key, results))
        for index, first, last in partitions:
            try:
                partition = find(key, index)
                log = partition.log
                if log is None:
                    log = partition.online_log()
                if acks < 0 and log.config.min_insync_replicas > 1:
                    _check_isr(partition)
                if first < 0:
                    raise ApiError(ErrorCode.INVALID_RECORD, "the records are null")
                base_offset = log.append_as_leader(
                    buffer, view, first, last, partition.leader_epoch, node.wall_ms
                )
            except ApiError as refusal:
                if refusal.code in SEQUENCE_ERRORS and partition.unsettled:
                    partition.unsettled.append((reply, key))
                results.append(refused(index, refusal.code, refusal.message, refusal.bad_records))
            except OSError as problem:
                results.append(refused(index, *node.storage_failed(partition, problem)))
            else:
                unsettled = partition.unsettled
                if not unsettled and not partition.on_commit:
                    node.dirty.append(partition)
                unsettled.append((reply, key))
                append_time, log_start = log.last_append_time, log.log_start_offset
                said = (index, 0, base_offset, append_time, log_start, None, ())
                results.append(_new(PartitionResult, said))


def take_back(partition: Partition, code: ErrorCode, message: str) -> None:
    """The group commit of this partition failed: none of its replies hold."""
    for reply, key in partition.unsettled:
        assert isinstance(reply, ProduceReply)
        reply.refuse(key, partition.index, code, message)


def _check_isr(partition: Partition) -> None:
    """acks=all needs min.insync.replicas, but never more than there are replicas."""
    required = min(partition.online_log().config.min_insync_replicas, partition.replica_count)
    in_sync = 1  # this one
    if in_sync < required:
        raise ApiError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{in_sync} in-sync replica, min.insync.replicas is {required}",
        )
