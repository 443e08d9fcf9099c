"""A TxnOffsetCommit of many partitions, handled in slices.

The records are written in parts (`offset_commit_parts`), all in the same transaction. If a part is
refused, the client has to abort the transaction, and the others do not count either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.handlers.txn_offset_commit import head_of, image_of, refuse, write_commit
from ottla.broker.large_requests.offset_commit_parts import (
    TOPICS_A_STEP,
    PartResults,
    Row,
    each_once,
    fit_into_one_batch,
    parts_of,
    row,
)
from ottla.coordinator.groups.group_shard import GroupShard
from ottla.coordinator.groups.offset_commit import PartitionCode, refuse_partitions
from ottla.coordinator.groups.txn_offset_commit import TransactionalCommit
from ottla.coordinator.runtime.reply import Reply
from ottla.coordinator.runtime.shard_runtime import ShardRuntime
from ottla.log.state.verifications import UNVERIFIED
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps, in_steps
from ottla.wire.discard import discard_in_steps
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node


def commit_in_parts(
    node: Node,
    request: TxnOffsetCommitRequest,
    context: RequestContext,
    runtime: ShardRuntime[GroupShard],
    guard: int,
) -> Steps[None]:
    """Commit all partitions of a request that was verified."""
    topics = yield from each_once((topic.name, topic.partitions) for topic in request.topics)
    parts = yield from parts_of(topics, lambda name: image_of(node, context, str(name)))
    room = runtime.shard.max_batch_bytes
    if not (yield from fit_into_one_batch(parts, request.group_id, room)):
        error = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        yield from context.send_in_slices(refuse(request, error, context))
        return
    rows: list[Row] = yield from in_steps(row, topics.keys(), TOPICS_A_STEP)
    head = head_of(request, context.version)
    yield from discard_in_steps(topics, request)
    results = PartResults(len(parts))
    for position, part in enumerate(parts):
        commit = head._replace(topics=part.topics)
        if _commit(runtime, commit, results.part(position), guard):
            guard = UNVERIFIED  # the transaction has begun in this log
        yield
    yield from results.put_into(rows, parts)
    yield from context.send_in_slices(TxnOffsetCommitResponse(topics=LazyList(_answered, rows)))
    yield from discard_in_steps(rows, parts, results.sent)


def _commit(
    runtime: ShardRuntime[GroupShard], commit: TransactionalCommit, reply: Reply, guard: int
) -> bool:
    """Commit a part; return True if it has records."""
    try:
        if not runtime.is_active:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return write_commit(runtime, commit, reply, guard)
    except ApiError as error:
        reply.send(refuse_partitions(commit.topics, error.code))
        return False


def _answered(result: Row) -> TxnOffsetCommitResponseTopic:
    topic, codes = result
    return TxnOffsetCommitResponseTopic(name=str(topic), partitions=LazyList(_result, codes))


def _result(code: PartitionCode) -> TxnOffsetCommitResponsePartition:
    return TxnOffsetCommitResponsePartition(partition_index=code[0], error_code=code[1])
