"""Produce, versions 3 to 13: append each partition's batch, answer when it is written or committed.

acks=0 gets no answer (a refused batch closes the connection, as in Kafka); acks=1 waits until the
leader has written the batch, acks=all until it is committed: until every in-sync replica has it.
Requests behind one that waits are handled meanwhile. Before it is appended, a batch whose records
must be looked at waits for a helper process (`ottla.replication.delayed_appends`), and the first
one of a transaction for its coordinator (`ottla.broker.transactional_produce`).

A request that names very many partitions, or one of them twice, is handled in slices
(`ottla.broker.large_requests.large_produce`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

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
from ottla.broker.current_leaders import LEADER_ERRORS, CurrentLeaders
from ottla.log.append_rules import UNCHECKED, AppendLater
from ottla.log.state.verifications import NOT_TRANSACTIONAL, UNVERIFIED
from ottla.model.errors import NO_BAD_RECORDS, ApiError, ErrorCode
from ottla.records.batch import ATTRIBUTES_OFFSET, COMPRESSION_MASK, MAGIC_OFFSET, MAGIC_V2
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
    from ottla.model.steps import Steps
    from ottla.replication.partition import Partition
    from ottla.wire.messages.produce import ProduceRequest as ProduceMessage

Guards: TypeAlias = dict[tuple[bytes, int], int | ApiError]
"""For partitions by topic key and index: the guard of a transactional batch, or its refusal."""

FIRST_WITH_ZSTD = 7
_ZSTD = 4
WRONG_ACKS = "acks is 0, 1 or -1 (all)"


class Context(RequestContext):
    """A request whose batches are appended; complete when all of them are settled."""

    acks = 0
    timeout_ms = 0
    open_appends = 0
    """How many appends are not settled; below 0 after a request whose time was over."""
    answers: Answers
    leaders: CurrentLeaders | None = None
    """Who leads the partitions that this broker does not lead, if there are any."""
    late: dict[tuple[int, int], list[PartitionResult]] | None = None
    """The appends that wait for followers, by the identity of their results and the position."""
    timer: Timer | None = None

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
        results[position] = (
            index,
            0,
            base_offset,
            append_time,
            log_start_offset,
            None,
            NO_BAD_RECORDS,
        )

    def appended(
        self, results: list[PartitionResult], position: int, error: ApiError | None
    ) -> None:
        """Take the result of an append: it is as noted in the answers, or this error."""
        if error is None and self.open_appends == 1 and self.acks and self.timer is None:
            self.open_appends = 0  # the only append, or the last: nearly always
            self.complete(
                encode_produce_response(
                    self.version,
                    self.correlation_id,
                    self.answers,
                    self.throttle_ms,
                    self.leaders,
                )
            )
            return
        if error is not None:
            index = results[position][0]
            results[position] = refused(index, error.code, error.message, error.bad_records)
            if error.code in LEADER_ERRORS:
                self.name_leader(next(key for key, some in self.answers if some is results), index)
        if self.late:
            self.late.pop((id(results), position), None)
        still_open = self.open_appends - 1
        if still_open:
            self.open_appends = still_open
        else:
            self.answer()

    def name_leader(self, key: bytes, index: int) -> None:
        """Tell the client who leads a partition that this broker does not lead."""
        if self.leaders is None:
            self.leaders = CurrentLeaders(self.node, self.connection.listener)
        self.leaders.add(key, index, is_id=self.version >= FIRST_TOPIC_ID)

    def wait_for_followers(self, results: list[PartitionResult], position: int) -> None:
        """Give the followers the time that the client allows."""
        if self.late is None:
            self.late = {}
        self.late[id(results), position] = results
        if self.timer is None:
            node = self.node
            deadline_ms = node.monotonic_ms + max(self.timeout_ms, 0)
            self.timer = node.timers.at(deadline_ms, self.time_out)

    def time_out(self) -> None:
        """Refuse what followers do not have yet. It stays in the log, as in Kafka."""
        for (_, position), results in (self.late or {}).items():
            index = results[position][0]
            results[position] = refused(index, ErrorCode.REQUEST_TIMED_OUT)
        self.answer()

    def abandon(self) -> None:
        """Stop waiting: the connection is gone. What was appended stays."""
        if self.timer is not None:
            self.timer.cancel()

    def answer(self) -> None:
        """Answer with the results there are."""
        if self.timer is not None:
            self.timer.cancel()
        self.open_appends = 0
        if self.acks:
            self.complete(
                encode_produce_response(
                    self.version,
                    self.correlation_id,
                    self.answers,
                    self.throttle_ms,
                    self.leaders,
                )
            )
            return
        connection = self.connection
        if any(result[1] for _, results in self.answers for result in results):
            connection.closing = True
            self.node.ready.append(connection)
        elif connection.parked is self:
            connection.parked = None
            self.node.ready.append(connection)


def decoder_of(version: int) -> Callable[..., ProduceRequest]:
    """Return the function that decodes this version."""
    return decode_flexible if version >= FIRST_FLEXIBLE else decode_legacy


def handle(node: Node, request: ProduceRequest, context: Context) -> None:
    """Append the batches; the context answers when they are written or committed."""
    transactional_id, acks, timeout_ms, topics, buffer, view = request
    context.answers = []
    context.acks = acks
    context.timeout_ms = timeout_ms
    context.open_appends = 0
    context.leaders = context.timer = None  # set here, they are read faster
    if acks not in (1, -1, 0):
        context.answers = _refuse_all(topics, ErrorCode.INVALID_REQUIRED_ACKS, WRONG_ACKS)
    else:
        if transactional_id is not None:
            from ottla.broker.transactional_produce import produce_in_transaction

            produce_in_transaction(node, request, context)
            return
        append(node, context, topics, buffer, view, None)
        if context.open_appends:
            if acks:
                context.state = WAITING
                context.connection.pending.append(context)
            return
    context.answer()


def handle_large(node: Node, request: ProduceMessage, context: Context) -> Steps[None]:
    """Do the same for a request that names very many partitions."""
    from ottla.broker.large_requests.large_produce import append_in_steps

    return append_in_steps(node, request, context)


def refuse(request: ProduceRequest | ProduceMessage, error: ApiError, context: Context) -> None:
    """Answer with the error for every partition; without acks, close the connection."""
    if not isinstance(request, tuple):
        from ottla.broker.large_requests.large_produce import refuse_large

        refuse_large(request, error, context)
        return
    _, context.acks, _, topics, _, _ = request
    context.answers = _refuse_all(topics, error.code, error.message)
    context.answer()


def _refuse_all(topics: list[ProduceTopic], code: ErrorCode, message: str | None) -> Answers:
    """Return the same refusal for every partition: the request itself is not acceptable."""
    return [
        (key, [refused(index, code, message) for index, _, _ in partitions])
        for key, partitions in topics
    ]


def append(
    node: Node,
    context: Context,
    topics: list[ProduceTopic],
    buffer: bytearray,
    view: memoryview,
    guards: Guards | None,
) -> None:
    """Queue each partition's batch, and note what to say about it if all goes well.

    `guards` has what is known about the transaction on each partition, if the request has one.
    """
    acks, answers, version = context.acks, context.answers, context.version
    guard = NOT_TRANSACTIONAL
    hosted = node.topics.by_id if version >= FIRST_TOPIC_ID else node.topics.by_key
    is_special = guards is not None or version < FIRST_WITH_ZSTD
    for key, partitions in topics:
        topic = hosted.get(key)
        results: list[PartitionResult] = []
        answers.append((key, results))
        for index, first, last in partitions:
            leader = None
            try:
                partition = None if topic is None else topic.writable.get(index)
                if partition is None:
                    raise _absent(node, key, index, by_id=version >= FIRST_TOPIC_ID)
                leader = partition.leader
                if leader is None:
                    raise partition.not_leader()
                log = partition.log
                if log is None:
                    log = partition.online_log()
                if acks < 0 and log.config.min_insync_replicas > len(leader.isr):
                    leader.check_in_sync()
                if first < 0:
                    raise ApiError(ErrorCode.INVALID_RECORD, "the records are null")
                if is_special:
                    if version < FIRST_WITH_ZSTD:
                        _refuse_zstd(buffer, first, last, version)
                    if guards is not None:
                        guard = _guard(guards, key, index)
                if leader.delayed is not None:
                    _append_later(
                        node, context, leader, results, index, buffer, view, first, last, guard
                    )
                    continue
                base_offset = log.append_as_leader(
                    buffer, view, first, last, partition.leader_epoch, node.wall_ms,
                    UNCHECKED, guard,
                )  # fmt: skip
            except ApiError as refusal:
                if refusal.code in SEQUENCE_ERRORS and leader is not None and leader.unwritten:
                    leader.unwritten.append((WRITTEN, context, results, len(results)))
                    context.open_appends += 1
                if refusal.code in LEADER_ERRORS:
                    context.name_leader(key, index)
                results.append(refused(index, refusal.code, refusal.message, refusal.bad_records))
            except AppendLater as needed:
                assert leader is not None
                _append_later(
                    node, context, leader, results, index, buffer, view, first, last, guard, needed
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
                results.append(
                    (index, 0, base_offset, append_time, log_start, None, NO_BAD_RECORDS)
                )


def _refuse_zstd(buffer: bytearray, first: int, last: int, version: int) -> None:
    """Refuse batches in zstd, which older clients cannot read (KIP-110)."""
    if (
        last - first > ATTRIBUTES_OFFSET + 1
        and buffer[first + MAGIC_OFFSET] == MAGIC_V2
        and buffer[first + ATTRIBUTES_OFFSET + 1] & COMPRESSION_MASK == _ZSTD
    ):
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce version {version} does not allow zstd, version {FIRST_WITH_ZSTD} does",
        )


def _guard(guards: Guards, key: bytes, index: int) -> int:
    """Return the guard for a partition; raise ApiError if the coordinator has refused it."""
    guard = guards.get((key, index), UNVERIFIED)
    if isinstance(guard, ApiError):
        raise ApiError(guard.code, guard.message)  # its traceback would refer to the guards
    return guard


def _absent(node: Node, key: bytes, index: int, *, by_id: bool) -> ApiError:
    """Return the error for a partition that this broker does not have or that takes no batches."""
    topics = node.topics
    find = topics.partition_by_id if by_id else topics.partition_by_key
    try:
        return not_writable(find(key, index))
    except ApiError as error:
        return error


def not_writable(partition: Partition) -> ApiError:
    """Return the error for a partition that only the broker itself writes to."""
    return ApiError(
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"Cannot append to internal topic {partition.topic.name}",
    )


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
    guard: int,
    needed: AppendLater | None = None,
) -> None:
    """Let a batch wait for a helper process, a new segment, or the batches before it."""
    append = DelayedAppend(context, results, len(results), acks_all=context.acks < 0, guard=guard)
    try:
        append_later(node, leader, append, buffer, view, first, last, needed)
    except ApiError as refusal:
        results.append(refused(index, refusal.code, refusal.message, refusal.bad_records))
        return
    context.open_appends += 1
    results.append(refused(index, ErrorCode.REQUEST_TIMED_OUT))  # as long as nothing else is known
    if node.delayed_bytes > PARKED_BYTES:
        context.connection.parked = context
