"""Produce requests with a transactional id: the first batch of a transaction is verified (KIP-890).

A request with batches that begin a transaction on some partition waits until the coordinator has
verified or added these partitions. Until then the connection is parked, as a later batch must not
overtake the first one. A coordinator on this broker verifies at once. Such requests, and those
whose transactions have begun on all their partitions, are appended at once, like all others.

    version 12 and later     the coordinator adds the partitions (transaction version 2)
    earlier versions         the client has added them, and the coordinator is asked whether that is
                             so, unless transaction.partition.verification.enable is false
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ottla.broker.codecs.produce import FIRST_TOPIC_ID, ProduceRequest, ProduceTopic, refused
from ottla.broker.context import WAITING
from ottla.broker.handlers.produce import Context, Guards, append
from ottla.broker.transaction_verification import Codes, Question
from ottla.log.state.verifications import NOT_NEEDED
from ottla.model.acl import AclOperation, AclResourceType
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TopicPartition
from ottla.records.batch import (
    ATTRIBUTES_OFFSET,
    HEADER_SIZE,
    MAGIC_OFFSET,
    MAGIC_V2,
    TRANSACTIONAL_MASK,
    parse_header,
)
from ottla.wire.primitives import DecodeError

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.log.log import Log

FIRST_WITH_ABORTABLE: Final = 11
FIRST_ADDING_PARTITIONS: Final = 12
_RETRIABLE: Final = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def produce_in_transaction(node: Node, request: ProduceRequest, context: Context) -> None:
    """Append the batches of a request, after their transaction is verified if that is needed."""
    transactional_id, _, _, topics, buffer, view = request
    assert transactional_id is not None
    try:
        check = TransactionCheck(node, context, text_of(transactional_id))
        for key, partitions in topics:
            for index, first, last in partitions:
                check.add(key, index, buffer, first, last)
    except ApiError as error:
        context.answers = [
            (key, [refused(index, error.code, error.message) for index, _, _ in partitions])
            for key, partitions in topics
        ]
        context.answer()
        return
    if check.asked:
        # If the answer comes at once, the batches are appended from where they were received.
        later = _Later(node, context)
        check.ask(later.verified)
        if not later.is_verified:
            later.park(topics, view)
            return
    _append(node, context, topics, buffer, view, check.guards)


class _Later:
    """Appends the batches of a request that waits for its coordinator."""

    def __init__(self, node: Node, context: Context) -> None:
        self._node = node
        self._context = context
        self._kept: list[ProduceTopic] | None = None
        """The parked partitions; None while nothing is parked."""
        self._content = bytearray()
        self.is_verified = False

    def park(self, topics: list[ProduceTopic], view: memoryview) -> None:
        """Keep the batches, and let the requests of the connection wait."""
        self._kept, self._content = _copy(topics, view)
        context, connection = self._context, self._context.connection
        if context.acks:
            context.state = WAITING
            connection.pending.append(context)
        connection.parked = context

    def verified(self, guards: Guards) -> None:
        """Append what is parked. `guards` is what is known about the partitions."""
        self.is_verified = True
        connection, kept = self._context.connection, self._kept
        if kept is not None and not connection.closed:
            connection.parked = None
            content = self._content
            _append(self._node, self._context, kept, content, memoryview(content), guards)
            self._node.ready.append(connection)


def text_of(transactional_id: bytes) -> str:
    """Return a transactional id; raise DecodeError if it is not UTF-8."""
    try:
        return transactional_id.decode()
    except UnicodeDecodeError as cause:
        raise DecodeError("the transactional id is not UTF-8") from cause


def _append(
    node: Node,
    context: Context,
    topics: list[ProduceTopic],
    buffer: bytearray,
    view: memoryview,
    guards: Guards,
) -> None:
    append(node, context, topics, buffer, view, guards)
    if not context.open_appends:
        context.answer()
    elif context.acks and context.state != WAITING:
        context.state = WAITING
        context.connection.pending.append(context)


def _copy(topics: list[ProduceTopic], view: memoryview) -> tuple[list[ProduceTopic], bytearray]:
    """Return the partitions with their records in a buffer of their own.

    The buffers of requests are used again.
    """
    content = bytearray()
    kept: list[ProduceTopic] = []
    for key, partitions in topics:
        bounds = []
        for index, first, last in partitions:
            start = len(content) if first >= 0 else first
            if first >= 0:
                content += view[first:last]
            bounds.append((index, start, len(content) if first >= 0 else last))
        kept.append((key, bounds))
    return kept, content


class TransactionCheck:
    """The transactional batches of one request, and what must be asked before they are appended."""

    def __init__(self, node: Node, context: Context, transactional_id: str) -> None:
        self._node = node
        self._context = context
        self._transactional_id = transactional_id
        self._producer: tuple[int, int] | None = None
        self._adds_partitions = context.version >= FIRST_ADDING_PARTITIONS
        config = node.config.transaction_verification
        self._verifies = self._adds_partitions or config.transaction_partition_verification_enable
        self._find = (
            node.topics.by_id.get if context.version >= FIRST_TOPIC_ID else node.topics.by_key.get
        )
        self.guards: Guards = {}
        """What is known about the partitions so far."""
        self.asked: dict[TopicPartition, tuple[bytes, int]] = {}
        """The partitions that the coordinator must be asked about, with their keys."""
        self._begun: dict[tuple[bytes, int], tuple[Log, int]] = {}
        """Their logs, and the sequences of the batches."""

    def add(self, key: bytes, index: int, buffer: bytearray, first: int, last: int) -> None:
        """Look at the batch of a partition. Raise ApiError if all of them must be refused.

        The first one that is transactional asks whether the client may use the transactional id.
        """
        if (
            last - first < HEADER_SIZE
            or buffer[first + MAGIC_OFFSET] != MAGIC_V2
            or not buffer[first + ATTRIBUTES_OFFSET + 1] & TRANSACTIONAL_MASK
        ):
            return
        batch = parse_header(buffer, first)
        producer = batch.producer_id, batch.producer_epoch
        if self._producer not in (None, producer):
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                "The transactional batches have more than one producer id",
            )
        if self._producer is None:
            self._context.authorize(
                AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, self._transactional_id
            )
            self._producer = producer
        topic = self._find(key)
        partition = None if topic is None else topic.writable.get(index)
        if partition is None or partition.leader is None or partition.log is None:
            return  # the append tells why it is refused
        if not self._verifies:
            self.guards[key, index] = NOT_NEEDED
            return
        if batch.producer_id < 0:
            return
        self._begin(key, index, partition.log, batch.base_sequence)
        if isinstance(self.guards.get((key, index)), int):
            self.asked[TopicPartition(partition.topic.name, index)] = key, index
            self._begun[key, index] = partition.log, batch.base_sequence

    def _begin(self, key: bytes, index: int, log: Log, base_sequence: int) -> None:
        """Get the guard for the batch of a partition, or the error why it is refused."""
        assert self._producer is not None
        try:
            guard = log.begin_verification(
                *self._producer,
                base_sequence,
                self._node.wall_ms,
                adds_partition=self._adds_partitions,
            )
        except ApiError as error:
            self.guards[key, index] = error.with_traceback(None)  # which refers to this frame
            return
        if guard is not None:
            self.guards[key, index] = guard

    def _begin_again(self) -> bool:
        """Get the guards again, and return True if one has changed.

        A marker that was written meanwhile, of the transaction before, has forgotten it.
        """
        before = dict(self.guards)
        for (key, index), (log, base_sequence) in self._begun.items():
            self._begin(key, index, log, base_sequence)
        return self.guards != before

    def ask(self, verified: Callable[[Guards], None]) -> None:
        """Ask the coordinator; `verified` gets what is known about the partitions then."""
        node = self._node
        config = node.config.transaction_verification
        deadline_ms = node.monotonic_ms + config.add_partitions_to_txn_retry_backoff_max_ms

        def ask() -> None:
            assert self._producer is not None
            self._begin_again()
            node.transaction_verifier.ask(
                Question(
                    self._transactional_id,
                    *self._producer,
                    list(self.asked),
                    answered,
                    adds_partitions=self._adds_partitions,
                )
            )

        def answered(codes: Codes) -> None:
            again_ms = node.clock.monotonic_ms() + config.add_partitions_to_txn_retry_backoff_ms
            if self._is_ending(codes.values()) and again_ms <= deadline_ms:
                node.timers.at(again_ms, ask)
                return
            if not any(codes.values()) and self._begin_again():
                ask()
                return
            for partition, code in codes.items():
                if code:
                    self.guards[self.asked[partition]] = refusal_of(code, self._context.version)
            verified(self.guards)

        ask()

    def _is_ending(self, codes: Iterable[ErrorCode]) -> bool:
        """Return True if the producer's last transaction is about to end: it may begin another."""
        return self._adds_partitions and ErrorCode.CONCURRENT_TRANSACTIONS in codes


def refusal_of(code: ErrorCode, version: int) -> ApiError:
    """Return what a client of this version of Produce is told about a coordinator's error."""
    if code == ErrorCode.PRODUCER_FENCED:
        return ApiError(ErrorCode.INVALID_PRODUCER_EPOCH)
    if code == ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_WITH_ABORTABLE:
        code = ErrorCode.INVALID_TXN_STATE
    if code == ErrorCode.INVALID_TXN_STATE:
        return ApiError(code, "The partition is not part of the transaction")
    if code in _RETRIABLE or (
        code == ErrorCode.CONCURRENT_TRANSACTIONS and version < FIRST_ADDING_PARTITIONS
    ):
        # Older clients send the request again after this one, without asking for metadata.
        return ApiError(
            ErrorCode.NOT_ENOUGH_REPLICAS, f"The transaction could not be verified: {code.name}"
        )
    return ApiError(code)
