"""AddPartitionsToTxn, versions 0 to 5: partitions that a transaction writes to (KIP-98, KIP-890).

Clients send versions 0 to 3, for one transaction. Brokers send version 4 and later, for many: the
leader of a partition adds it for a client of transaction version 2, or only verifies that it was
added.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TypeAlias

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.broker.sliced_reply import SlicedReply
from ottla.coordinator.runtime.combined_reply import combined_reply
from ottla.coordinator.runtime.reply import Reply
from ottla.coordinator.transactions.add_partitions import MAX_PARTITIONS, AddPartitions
from ottla.coordinator.transactions.outcome import Outcome
from ottla.model.acl import CLUSTER_NAME, AclOperation, AclResourceType
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import INTERNAL_TOPICS, TopicPartition
from ottla.model.steps import ITEMS_A_STEP, Steps
from ottla.wire.lazy_list import LazyList
from ottla.wire.message import Message
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

FIRST_PRODUCER_FENCED = 2
FIRST_OF_BROKERS = 4
_CLIENT_VERSION_OF_BROKERS = 2
PARTITIONS_A_STEP = 200

_Codes: TypeAlias = dict[str, dict[int, ErrorCode]]
"""A code for each partition, by topic."""


def handle(
    node: Node, request: AddPartitionsToTxnRequest, context: RequestContext
) -> Steps[AddPartitionsToTxnResponse | None]:
    """Answer when all transactions are answered."""
    if context.version >= FIRST_OF_BROKERS:
        context.authorize(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME)
    transactions: dict[str, AddPartitionsToTxnTransaction] = {}
    topics = partitions = 0
    for each in _transactions(request, context):
        transactions[each.transactional_id] = each
        topics += len(each.topics)  # also those without partitions take their time
        if topics > MAX_PARTITIONS:
            raise ApiError(ErrorCode.POLICY_VIOLATION)
        partitions += sum(len(topic.partitions) for topic in each.topics)
        if partitions > MAX_PARTITIONS:
            raise ApiError(ErrorCode.POLICY_VIOLATION)
        yield
    if not transactions:
        return AddPartitionsToTxnResponse()

    def respond(parts: Sequence[Message]) -> AddPartitionsToTxnResponse:
        results = [part for part in parts if isinstance(part, AddPartitionsToTxnResult)]
        return _response(results, context)

    combined = combined_reply(SlicedReply(context), len(transactions), respond)
    for position, transaction in enumerate(transactions.values()):
        yield from _add(node, transaction, context, combined.part(position))
        yield
    return None


def refuse(
    request: AddPartitionsToTxnRequest, error: ApiError, context: RequestContext
) -> AddPartitionsToTxnResponse:
    """Return the error for all partitions; to brokers for the whole request."""
    if context.version >= FIRST_OF_BROKERS:
        return AddPartitionsToTxnResponse(error_code=error.code)
    (transaction,) = _transactions(request, context)
    return _response([_same(transaction, _known(error.code, context))], context)


def _transactions(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> list[AddPartitionsToTxnTransaction]:
    if context.version >= FIRST_OF_BROKERS:
        return request.transactions
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
    ]


def _response(
    results: list[AddPartitionsToTxnResult], context: RequestContext
) -> AddPartitionsToTxnResponse:
    if context.version >= FIRST_OF_BROKERS:
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    (result,) = results
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results)


def _add(
    node: Node, transaction: AddPartitionsToTxnTransaction, context: RequestContext, reply: Reply
) -> Steps[None]:
    """Add or verify the partitions of one transaction, and send its result."""
    try:
        refusals = yield from _check(node, transaction, context)
    except ApiError as error:
        reply.send(_same(transaction, _known(error.code, context)))
        return
    if refusals:
        reply.send(_each(transaction, refusals))
        return
    is_of_broker = context.version >= FIRST_OF_BROKERS
    yield from _ask(
        node,
        transaction,
        _CLIENT_VERSION_OF_BROKERS if is_of_broker else 0,
        reply.send,
        may_wait=not is_of_broker,
        known=lambda code: _known(code, context),
    )


def _ask(
    node: Node,
    transaction: AddPartitionsToTxnTransaction,
    client_version: int,
    tell: Callable[[AddPartitionsToTxnResult], None],
    *,
    may_wait: bool,
    known: Callable[[ErrorCode], ErrorCode] = lambda code: code,
) -> Steps[None]:
    """Ask the coordinator, and tell the result of the transaction."""

    def done(outcome: Outcome) -> None:
        if outcome.partitions is None:
            tell(_same(transaction, known(outcome.error_code)))
        else:
            codes: _Codes = {}
            for (topic, index), code in outcome.partitions:
                codes.setdefault(topic, {})[index] = code
            tell(_each(transaction, codes))

    partitions = yield from _partitions(transaction.topics)
    asked = AddPartitions(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        partitions,
        client_version,
    )
    try:
        if transaction.verify_only:
            node.transactions.verify_partitions(asked, done)
        else:
            node.transactions.add_partitions(asked, done, may_wait=may_wait)
    except ApiError as error:
        tell(_same(transaction, known(error.code)))


def _check(
    node: Node, transaction: AddPartitionsToTxnTransaction, context: RequestContext
) -> Steps[_Codes]:
    """Return a code for each partition if there are any that cannot be added.

    Then none is added, and the others get OPERATION_NOT_ATTEMPTED.
    """
    is_of_client = context.version < FIRST_OF_BROKERS
    if is_of_client:
        context.authorize(
            AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, transaction.transactional_id
        )
    codes: _Codes = {}
    is_refused = False
    for topic in transaction.topics:
        code = ErrorCode.OPERATION_NOT_ATTEMPTED
        image = node.image.topics.get(topic.name)
        count = 0 if image is None else len(image.partitions)
        if is_of_client and not (
            topic.name not in INTERNAL_TOPICS
            and context.allows(AclOperation.WRITE, AclResourceType.TOPIC, topic.name)
        ):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        of_topic = codes.setdefault(topic.name, {})
        for index in topic.partitions:
            known = code
            if known is ErrorCode.OPERATION_NOT_ATTEMPTED and not 0 <= index < count:
                known = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            of_topic[index] = known
            if not len(of_topic) % ITEMS_A_STEP:
                yield
            is_refused = is_refused or known is not ErrorCode.OPERATION_NOT_ATTEMPTED
        yield
    return codes if is_refused else {}


def _partitions(topics: Sequence[AddPartitionsToTxnTopic]) -> Steps[Collection[TopicPartition]]:
    """Return all partitions, each once."""
    found: dict[TopicPartition, None] = {}
    for number, topic in enumerate(topics, 1):
        for start in range(0, len(topic.partitions), PARTITIONS_A_STEP):
            some = topic.partitions[start : start + PARTITIONS_A_STEP]
            found.update((TopicPartition(topic.name, index), None) for index in some)
            if len(some) == PARTITIONS_A_STEP:
                yield
        if not number % ITEMS_A_STEP:
            yield
    return found.keys()


def _known(code: ErrorCode, context: RequestContext) -> ErrorCode:
    """Return the code that a client understands. Older ones do not know PRODUCER_FENCED."""
    if code is ErrorCode.PRODUCER_FENCED and context.version < FIRST_PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def _same(transaction: AddPartitionsToTxnTransaction, code: ErrorCode) -> AddPartitionsToTxnResult:
    """Return one code for all partitions."""
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=LazyList(partial(_same_of_topic, code=code), transaction.topics),
    )


def _same_of_topic(
    topic: AddPartitionsToTxnTopic, code: ErrorCode
) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        name=topic.name,
        results_by_partition=LazyList(partial(_result, code=code), topic.partitions),
    )


def _result_of(result: tuple[int, ErrorCode]) -> AddPartitionsToTxnPartitionResult:
    return _result(*result)


def _result(index: int, code: ErrorCode) -> AddPartitionsToTxnPartitionResult:
    return AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)


def _each(transaction: AddPartitionsToTxnTransaction, codes: _Codes) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=LazyList(_each_of_topic, codes.items()),
    )


def _each_of_topic(found: tuple[str, dict[int, ErrorCode]]) -> AddPartitionsToTxnTopicResult:
    name, codes = found
    return AddPartitionsToTxnTopicResult(
        name=name, results_by_partition=LazyList(_result_of, codes.items())
    )
