"""A Produce that is large, or names a partition more than once: handled in slices.

It names very many partitions, or has many bytes: each MB takes a millisecond to check and to write.

Of batches for the same partition the last one counts, as in Kafka, and the partition has one
result. Each slice appends to some partitions. The request is answered when all appends are
settled, and the connection is parked until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.broker.codecs.produce import FIRST_TOPIC_ID, PartitionResult, refused
from ottla.broker.context import ANSWERED
from ottla.broker.handlers.produce import WRONG_ACKS, Context, Guards, append
from ottla.broker.transactional_produce import TransactionCheck
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps
from ottla.records.batch import HEADER_SIZE
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node

PARTITIONS_A_STEP: Final = 20
BYTES_A_STEP: Final = 256 * 1024
NAMES_A_STEP: Final = 500

_Topics: TypeAlias = dict[bytes, dict[int, bytes | None]]


class LargeProduce(Context):
    """The appends of one request, whose reply is another context's."""

    def __init__(self, request: ProduceRequest, context: Context) -> None:
        super().__init__(context.api, context.connection, context.version, context.correlation_id)
        self.reply = context
        self.acks = request.acks
        self.timeout_ms = request.timeout
        self.transactional_id = request.transactional_id
        self.answers = []
        self.guards: Guards | None = None
        """What is known about the transaction on each partition, if there is one."""
        self.results: dict[bytes, list[list[PartitionResult]]] = {}
        """The results of each topic, each in a list of its own."""
        self.is_appending = True
        self.open_appends = 1  # one more, until all are appended

    def append(self, key: bytes, index: int, records: bytes | None) -> None:
        """Append the batch of one partition."""
        buffer = bytearray(records or b"")
        bounds = (index, -1, -1) if records is None else (index, 0, len(buffer))
        append(self.node, self, [(key, [bounds])], buffer, memoryview(buffer), self.guards)
        _, results = self.answers.pop()
        self.results.setdefault(key, []).append(results)
        if self.connection.parked is self:
            self.connection.parked = self.reply

    def refuse(self, key: bytes, index: int, error: ApiError) -> None:
        """Append nothing to a partition."""
        result = refused(index, error.code, error.message)
        self.results.setdefault(key, []).append([result])

    def all_appended(self) -> None:
        """Answer when the appends are settled. From now on the followers have their time."""
        self.is_appending = False
        self.open_appends -= 1
        if not self.open_appends:
            self.answer()
        elif self.late:
            self._start_timer()

    def appended(
        self, results: list[PartitionResult], position: int, error: ApiError | None
    ) -> None:
        """Take the result of an append: it is as noted in the answers, or this error."""
        if error is not None:
            index = results[position][0]
            results[position] = refused(index, error.code, error.message, error.bad_records)
        if self.late:
            self.late.pop((id(results), position), None)
        self.open_appends -= 1
        if not self.open_appends:
            self.answer()

    def wait_for_followers(self, results: list[PartitionResult], position: int) -> None:
        """Give the followers the time that the client allows, after the last append."""
        if self.late is None:
            self.late = {}
        self.late[id(results), position] = results
        if not self.is_appending and self.timer is None:
            self._start_timer()

    def _start_timer(self) -> None:
        node = self.node
        deadline_ms = node.monotonic_ms + max(self.timeout_ms, 0)
        self.timer = node.timers.at(deadline_ms, self.time_out)

    def time_out(self) -> None:
        """Refuse what followers do not have yet. It stays in the log, as in Kafka."""
        self.open_appends = 0
        self.run(self._refuse_late())

    def _refuse_late(self) -> Steps[None]:
        late, self.late = self.late or {}, None
        for number, ((_, position), results) in enumerate(late.items(), 1):
            results[position] = refused(results[position][0], ErrorCode.REQUEST_TIMED_OUT)
            if not number % NAMES_A_STEP:
                yield
        yield from self._send()

    def answer(self) -> None:
        """Answer with the results there are."""
        if self.timer is not None:
            self.timer.cancel()
        self.run(self._send())

    def run(self, steps: Steps[None]) -> None:
        """Do something in slices, as long as the client waits for the reply."""
        connection = self.connection
        self.node.sliced_work.run(steps, lambda: not connection.closed)

    def _send(self) -> Steps[None]:
        if self.acks:
            yield from self.reply.send_in_slices(self._response())
            return
        has_errors = False
        for lists in self.results.values():
            for start in range(0, len(lists), NAMES_A_STEP):
                some = lists[start : start + NAMES_A_STEP]
                has_errors = has_errors or any(results[0][1] for results in some)
                yield
        self._end_without_reply(has_errors)

    def _end_without_reply(self, has_errors: bool) -> None:
        """Let the connection go on, or close it if something was refused, as in Kafka."""
        connection, reply = self.connection, self.reply
        connection.pending.remove(reply)
        reply.state = ANSWERED
        if has_errors:
            connection.closing = True
        if connection.parked is reply:
            connection.parked = None
        connection.release_complete()
        self.node.ready.append(connection)

    def _response(self) -> ProduceResponse:
        by_id = self.version >= FIRST_TOPIC_ID
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name="" if by_id else key.decode(),
                    topic_id=key if by_id else bytes(16),
                    partition_responses=LazyList(_partition_response, lists),
                )
                for key, lists in self.results.items()
            ]
        )


def append_in_steps(node: Node, request: ProduceRequest, context: Context) -> Steps[None]:
    """Append the batches of all partitions; the request is answered when they are settled."""
    topics = yield from _partitions_once(request, context.version)
    error = None
    if request.acks not in (1, -1, 0):
        error = ApiError(ErrorCode.INVALID_REQUIRED_ACKS, WRONG_ACKS)
    yield from _handle(LargeProduce(request, context), topics, error)


def refuse_large(request: ProduceRequest, error: ApiError, context: Context) -> None:
    """Answer with the error for every partition; without acks, close the connection."""

    def steps() -> Steps[None]:
        topics = yield from _partitions_once(request, context.version)
        yield from _handle(LargeProduce(request, context), topics, error)

    context.run_in_slices(steps())


def _handle(large: LargeProduce, topics: _Topics, error: ApiError | None) -> Steps[None]:
    """Append to all partitions, or refuse all of them with the same error."""
    large.reply.defer()
    if error is None and large.transactional_id is not None:
        check = TransactionCheck(large.node, large, large.transactional_id)
        try:
            yield from _add_to(check, topics)
        except ApiError as refusal:
            error = refusal
        large.guards = check.guards
        if error is None and check.asked:
            check.ask(lambda guards: large.run(_append_all(large, topics, None)))
            return
    yield from _append_all(large, topics, error)


def _add_to(check: TransactionCheck, topics: _Topics) -> Steps[None]:
    """Look at all batches for those that begin a transaction."""
    number = 0
    for key, partitions in topics.items():
        for index, records in partitions.items():
            if records is not None:
                head = bytearray(records[:HEADER_SIZE])
                check.add(key, index, head, 0, len(head))
            number += 1
            if not number % PARTITIONS_A_STEP:
                yield


def _append_all(large: LargeProduce, topics: _Topics, error: ApiError | None) -> Steps[None]:
    number = size = 0
    for key, partitions in topics.items():
        for index, records in partitions.items():
            if error is None:
                large.append(key, index, records)
                partitions[index] = None  # freed with each step, not all at the end
            else:
                large.refuse(key, index, error)
            number += 1
            size += 0 if records is None else len(records)
            if number >= PARTITIONS_A_STEP or size >= BYTES_A_STEP:
                number = size = 0
                large.node.write_appended()
                yield
    large.all_appended()


def _partitions_once(request: ProduceRequest, version: int) -> Steps[_Topics]:
    """Return the last batch of each partition."""
    once: _Topics = {}
    for topic in request.topic_data:
        key = topic.topic_id if version >= FIRST_TOPIC_ID else topic.name.encode()
        by_index = once.setdefault(key, {})
        for start in range(0, len(topic.partition_data), NAMES_A_STEP):
            some: list[PartitionProduceData] = list(
                topic.partition_data[start : start + NAMES_A_STEP]
            )
            by_index.update((partition.index, partition.records) for partition in some)
            for partition in some:
                partition.records = None  # what is appended is freed
            yield
        yield
    return once


def _partition_response(results: list[PartitionResult]) -> PartitionProduceResponse:
    (index, code, base_offset, append_time, log_start_offset, message, bad_records) = results[0]
    return PartitionProduceResponse(
        index=index,
        error_code=code,
        base_offset=base_offset,
        log_append_time=append_time,
        log_start_offset=log_start_offset,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=problem)
            for number, problem in bad_records.items()
        ],
        error_message=message,
    )
