"""Produce, versions 3 to 13: append each partition's batch, answer when it is written or committed.

acks=0 gets no answer (a refused batch closes the connection, as in Kafka); acks=1 waits until the
leader has written the batch, acks=all until it is committed: until every in-sync replica has it.
Requests behind one that waits are handled meanwhile. A batch whose records must be looked at waits
for a helper process before it is appended (`ottla.replication.delayed_appends`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.codecs.produce import (
    FIRST_FLEXIBLE,
    FIRST_TOPIC_ID,
    Answers,
    PartitionResult,
    ProduceRequest,
    ProduceTopic,
    decode_flexible,
    decode_legacy,
    encode_produce_response,
    refused,
)
from ottla.broker.context import WAITING, RequestContext
from ottla.log.append_rules import NeedsValidation
from ottla.model.errors import ApiError, ErrorCode
from ottla.replication.delayed_appends import (
    PARKED_BYTES,
    SEQUENCE_ERRORS,
    DelayedAppend,
    append_later,
)
from ottla.replication.partition_leader import WRITTEN, PartitionLeader
from ottla.replication.timers import Timer

if TYPE_CHECKING:
    from ottla.broker.node import Node


class Context(RequestContext):
    """A request whose batches are appended; complete when all of them are settled."""

    acks = 0
    timeout_ms = 0
    open_appends = 0
    """How many appends are not settled; below 0 after a request whose time was over."""
    answers: Answers
    _late: tuple[tuple[list[PartitionResult], int], ...] = ()
    """The appends that wait for followers."""
    _timer: Timer | None = None

    # -- appends that are under way, told by the partition's leader ----------------------

    def accepted(
        self,
        results: list[PartitionResult],
        position: int,
        base_offset: int,
        append_time: int,
        log_start_offset: int,
    ) -> None:
        """Note what to say about a delayed append if all goes well."""
        index = results[position][0]
        results[position] = (index, 0, base_offset, append_time, log_start_offset, None, ())

    def appended(
        self, results: list[PartitionResult], position: int, error: ApiError | None
    ) -> None:
        """Hear what became of an append: what was said about it holds, or this error does."""
        if error is not None:
            index = results[position][0]
            results[position] = refused(index, error.code, error.message, error.bad_records)
        if self._late:
            self._not_late(results, position)
        still_open = self.open_appends - 1
        if still_open:
            self.open_appends = still_open
        else:
            self.answer()

    def wait_for_followers(self, results: list[PartitionResult], position: int) -> None:
        """Give the followers the time that the client allows."""
        self._late += ((results, position),)
        if self._timer is None:
            node = self.node
            deadline_ms = node.monotonic_ms + max(self.timeout_ms, 0)
            self._timer = node.timers.at(deadline_ms, self._time_out)

    def _not_late(self, results: list[PartitionResult], position: int) -> None:
        self._late = tuple(
            late for late in self._late if late[0] is not results or late[1] != position
        )

    def _time_out(self) -> None:
        """Refuse what followers do not have yet. It stays in the log, as in Kafka."""
        for results, position in self._late:
            index = results[position][0]
            results[position] = refused(index, ErrorCode.REQUEST_TIMED_OUT)
        self.answer()

    def abandon(self) -> None:
        """Stop waiting: the connection is gone. What was appended stays."""
        if self._timer is not None:
            self._timer.cancel()

    def answer(self) -> None:
        """Answer with the results there are."""
        if self._timer is not None:
            self._timer.cancel()
        self.open_appends = 0
        if self.acks:
            self.complete(
                encode_produce_response(
                    self.version, self.correlation_id, self.answers, self.throttle_ms
                )
            )
            return
        connection = self.connection
        if any(result[1] for _, results in self.answers for result in results):
            connection.closing = True
            self.api.node.ready.append(connection)
        elif connection.parked is self:
            connection.parked = None
            self.api.node.ready.append(connection)


def decoder_of(version: int) -> Callable[..., ProduceRequest]:
    """Return the function that decodes this version."""
    return decode_flexible if version >= FIRST_FLEXIBLE else decode_legacy


def handle(node: Node, request: ProduceRequest, context: Context) -> None:
    """Append the batches; the context answers when they are written or committed."""
    transactional_id, acks, timeout_ms, topics, buffer, view = request
    context.answers = []
    context.acks = acks
    context.timeout_ms = timeout_ms
    if acks not in (1, -1, 0):
        code = ErrorCode.INVALID_REQUIRED_ACKS
        context.answers = _refuse_all(topics, code, "acks is 0, 1 or -1 (all)")
    elif transactional_id is not None:
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        message = "transactions are not supported by this broker"
        context.answers = _refuse_all(topics, code, message)
    else:
        _append(node, context, topics, buffer, view)
        if context.open_appends:
            if acks:
                context.state = WAITING
                context.connection.pending.append(context)
            return
    context.answer()


def refuse(request: ProduceRequest, error: ApiError, context: Context) -> None:
    """Answer with the error for every partition; without acks, close the connection."""
    _, context.acks, _, topics, _, _ = request
    context.answers = _refuse_all(topics, error.code, error.message)
    context.answer()


def _refuse_all(topics: list[ProduceTopic], code: ErrorCode, message: str | None) -> Answers:
    """Return the same refusal for every partition: the request itself is not acceptable."""
    return [
        (key, [refused(index, code, message) for index, _, _ in partitions])
        for key, partitions in topics
    ]


def _append(
    node: Node, context: Context, topics: list[ProduceTopic], buffer: bytearray, view: memoryview
) -> None:
    """Queue each partition's batch, and note what to say about it if all goes well."""
    acks, answers = context.acks, context.answers
    hosted = node.topics
    by_id = context.version >= FIRST_TOPIC_ID
    find_topic = hosted.by_id.get if by_id else hosted.by_key.get
    find_partition = hosted.partition_by_id if by_id else hosted.partition_by_key
    for key, partitions in topics:
        topic = find_topic(key)
        results: list[PartitionResult] = []
        answers.append((key, results))
        for index, first, last in partitions:
            leader = None
            try:
                partition = None if topic is None else topic.partitions.get(index)
                if partition is None:
                    partition = find_partition(key, index)  # which says what is wrong
                leader = partition.leader
                if leader is None:
                    raise partition.not_leader()
                log = partition.log
                if log is None:
                    log = partition.online_log()
                if acks < 0 and log.config.min_insync_replicas > 1:
                    leader.check_in_sync()
                if first < 0:
                    raise ApiError(ErrorCode.INVALID_RECORD, "the records are null")
                if leader.delayed is not None:
                    _append_later(node, context, leader, results, index, buffer, view, first, last)
                    continue
                base_offset = log.append_as_leader(
                    buffer, view, first, last, partition.leader_epoch, node.wall_ms
                )
            except ApiError as refusal:
                if refusal.code in SEQUENCE_ERRORS and leader is not None and leader.unwritten:
                    leader.unwritten.append((WRITTEN, context, results, len(results)))
                    context.open_appends += 1
                results.append(refused(index, refusal.code, refusal.message, refusal.bad_records))
            except NeedsValidation as needed:
                assert leader is not None
                _append_later(
                    node, context, leader, results, index, buffer, view, first, last, needed
                )
            except OSError as problem:
                assert partition is not None
                results.append(refused(index, *node.storage_failed(partition, problem)))
            else:
                unwritten = leader.unwritten
                if not unwritten:
                    node.appended.append(leader)
                until = log.log_end_offset if acks < 0 else WRITTEN
                unwritten.append((until, context, results, len(results)))
                context.open_appends += 1
                append_time, log_start = log.last_append_time, log.log_start_offset
                results.append((index, 0, base_offset, append_time, log_start, None, ()))


def _append_later(
    node: Node,
    context: Context,
    leader: PartitionLeader,
    results: list[PartitionResult],
    index: int,
    buffer: bytearray,
    view: memoryview,
    first: int,
    last: int,
    needed: NeedsValidation | None = None,
) -> None:
    """Let a batch wait until its records were looked at, or until those before it are appended."""
    append = DelayedAppend(context, results, len(results), acks_all=context.acks < 0)
    try:
        append_later(node, leader, append, buffer, view, first, last, needed)
    except ApiError as refusal:
        results.append(refused(index, refusal.code, refusal.message, refusal.bad_records))
        return
    context.open_appends += 1
    results.append(refused(index, ErrorCode.REQUEST_TIMED_OUT))  # as long as nothing else is known
    if node.delayed_bytes > PARKED_BYTES:
        context.connection.parked = context
