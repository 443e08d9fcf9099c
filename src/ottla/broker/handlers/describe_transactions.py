"""DescribeTransactions, version 0: the state of transactional ids (KIP-664)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.broker.sliced_reply import SlicedReply
from ottla.coordinator.runtime.combined_reply import answer_together
from ottla.coordinator.runtime.shard_runtime import ShardRuntime
from ottla.coordinator.transactions.transaction_listing import describe_transaction
from ottla.coordinator.transactions.transaction_shard import TransactionShard
from ottla.model.acl import AclOperation, AclResourceType
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

MOST_PARTITIONS = 200_000
"""Once a response has more than this, further ids get an error."""


def handle(
    node: Node, request: DescribeTransactionsRequest, context: RequestContext
) -> Steps[DescribeTransactionsResponse | None]:
    """Return each transactional id, once."""
    answers: list[tuple[ShardRuntime[TransactionShard] | None, TransactionState]] = []
    count = 0
    for transactional_id in dict.fromkeys(request.transactional_ids):
        if count > MOST_PARTITIONS:
            refusal = ApiError(ErrorCode.POLICY_VIOLATION)
            answers.append((None, _refused(transactional_id, refusal)))
        else:
            answers.append(_describe(node, transactional_id, context))
            count += sum(len(topic.partitions) for topic in answers[-1][1].topics)
        yield
    return answer_together(
        lambda: SlicedReply(context),
        TransactionState,
        answers,
        lambda states: DescribeTransactionsResponse(transaction_states=states),
    )


def refuse(
    request: DescribeTransactionsRequest, error: ApiError, context: RequestContext
) -> DescribeTransactionsResponse:
    """Return the error for every id."""
    return DescribeTransactionsResponse(
        transaction_states=LazyList(lambda each: _refused(each, error), request.transactional_ids)
    )


def _refused(transactional_id: str, error: ApiError) -> TransactionState:
    return TransactionState(transactional_id=transactional_id, error_code=error.code)


def _describe(
    node: Node, transactional_id: str, context: RequestContext
) -> tuple[ShardRuntime[TransactionShard] | None, TransactionState]:
    """Return the answer for one id, and the runtime whose commits it has to wait for."""
    try:
        context.authorize(AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, transactional_id)
        runtime = node.transactions.runtime_of(transactional_id)
        return runtime, describe_transaction(runtime.shard, transactional_id)
    except ApiError as error:
        return None, _refused(transactional_id, error)
