"""TxnOffsetCommit, versions 0 to 5: store the offsets of a group with a transaction.

KIP-98, KIP-447, KIP-890. The group's partition of __consumer_offsets must be part of the
transaction. A client of transaction version 2 (version 5) leaves it to this broker to add it;
others have added it with AddOffsetsToTxn, and the coordinator of the transaction is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.broker.context import RequestContext
from ottla.broker.transaction_verification import Codes, Question
from ottla.coordinator.groups.group_shard import GroupShard
from ottla.coordinator.groups.offset_commit import CommitResults, PartitionCommit
from ottla.coordinator.groups.txn_offset_commit import TransactionalCommit, commit_in_transaction
from ottla.coordinator.runtime.reply import Reply
from ottla.coordinator.runtime.shard_runtime import ShardRuntime
from ottla.log.state.verifications import NOT_NEEDED, UNVERIFIED
from ottla.metadata.image import TopicImage
from ottla.model.acl import AclOperation, AclResourceType
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_SEQUENCE, OFFSETS_TOPIC, TopicPartition
from ottla.wire.lazy_list import LazyList
from ottla.wire.message import Message
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node

FIRST_LOAD_IN_PROGRESS: Final = 2
FIRST_ABORTABLE: Final = 4
FIRST_ADDING_PARTITIONS: Final = 5
MAX_PARTITIONS: Final = 10_000
"""How many partitions a request may name. Its records must fit into one batch."""
MAX_TOPICS: Final = 5000
MOST_AT_ONCE: Final = 200
"""How many topics and partitions are committed at once. More are committed in slices."""


def handle(node: Node, request: TxnOffsetCommitRequest, context: RequestContext) -> None:
    """Answer with each partition's result, once the records are committed."""
    context.authorize(
        AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, request.transactional_id
    )
    context.authorize(AclOperation.READ, AclResourceType.GROUP, request.group_id)
    if _is_too_large(request):
        raise ApiError(ErrorCode.POLICY_VIOLATION)
    if not request.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    runtime = node.groups.runtime_of(request.group_id)
    context.defer()

    def verified(guard: int | ApiError) -> None:
        if isinstance(guard, ApiError):
            _send_refusal(request, guard, context)
        elif not runtime.is_active:
            _send_refusal(request, ApiError(ErrorCode.NOT_COORDINATOR), context)
        elif _is_large(request):
            from ottla.broker.large_requests.large_txn_offset_commit import commit_in_parts

            context.run_in_slices(commit_in_parts(node, request, context, runtime, guard))
        else:
            _commit(node, request, context, runtime, guard)

    _verify(node, request, context, runtime, verified)


def _is_too_large(request: TxnOffsetCommitRequest) -> bool:
    """Return True if there are too many partitions, or topics without any."""
    topics = request.topics
    return (
        len(topics) > MAX_TOPICS or sum(len(topic.partitions) for topic in topics) > MAX_PARTITIONS
    )


def _is_large(request: TxnOffsetCommitRequest) -> bool:
    """Return True if there is too much to do all at once."""
    topics = request.topics
    return len(topics) + sum(len(topic.partitions) for topic in topics) > MOST_AT_ONCE


def _verify(
    node: Node,
    request: TxnOffsetCommitRequest,
    context: RequestContext,
    runtime: ShardRuntime[GroupShard],
    verified: Callable[[int | ApiError], None],
) -> None:
    """Make sure that the partition is part of the transaction. `verified` gets the guard."""
    adds_partition = context.version >= FIRST_ADDING_PARTITIONS
    config = node.config.transaction_verification
    if not (adds_partition or config.transaction_partition_verification_enable):
        verified(NOT_NEEDED)
        return
    partition = TopicPartition(OFFSETS_TOPIC, runtime.partition.index)

    def begin() -> int | None:
        return runtime.partition.online_log().begin_verification(
            request.producer_id,
            request.producer_epoch,
            NO_SEQUENCE,
            node.wall_ms,
            adds_partition=adds_partition,
        )

    def ask() -> None:
        try:
            guard = begin()
        except ApiError as error:
            verified(error)
            return
        if guard is None:
            verified(UNVERIFIED)  # it has begun on this partition
            return

        def answered(codes: Codes) -> None:
            code = codes[partition]
            if code is not ErrorCode.NONE:
                verified(ApiError(_told(code, context)))
                return
            try:
                is_same = begin() == guard
            except ApiError as error:  # the producer was fenced meanwhile
                verified(error)
                return
            if is_same:
                verified(guard)
            else:
                ask()  # a marker of the transaction before was written meanwhile

        question = Question(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [partition],
            answered,
            adds_partitions=adds_partition,
        )
        node.transaction_verifier.ask(question)

    ask()


def _told(code: ErrorCode, context: RequestContext) -> ErrorCode:
    """Return what a client is told if the coordinator of the transaction has refused."""
    if code in (
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    ):
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # which clients try again
    if code is ErrorCode.TRANSACTION_ABORTABLE and context.version < FIRST_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def head_of(request: TxnOffsetCommitRequest, version: int) -> TransactionalCommit:
    """Return a request without its partitions."""
    return TransactionalCommit(
        version,
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        request.producer_id,
        request.producer_epoch,
        [],
    )


def image_of(node: Node, context: RequestContext, topic: str) -> TopicImage | None:
    """Return a topic for which the sender may commit offsets, if it exists."""
    if not context.allows(AclOperation.READ, AclResourceType.TOPIC, topic):
        return None
    return node.image.topics.get(topic)


def _commit(
    node: Node,
    request: TxnOffsetCommitRequest,
    context: RequestContext,
    runtime: ShardRuntime[GroupShard],
    guard: int,
) -> None:
    topics = {topic.name: topic for topic in request.topics}
    asked = [
        (image_of(node, context, topic.name), _partitions_once(topic)) for topic in topics.values()
    ]
    commit = head_of(request, context.version)._replace(topics=asked)
    reply = _CommitReply(context, list(topics))
    try:
        write_commit(runtime, commit, reply, guard)
    except ApiError as error:
        context.send(refuse(request, error, context))


def write_commit(
    runtime: ShardRuntime[GroupShard], commit: TransactionalCommit, reply: Reply, guard: int
) -> bool:
    """Write offsets as part of a transaction; return True if there are records to write.

    `reply` gets the results. Raise ApiError if the sender may not commit offsets for the group.
    """
    results, records = commit_in_transaction(runtime.shard, commit)
    if not records:
        reply.send(results)
        return False
    runtime.shard.answer(reply, results)
    runtime.write_transactional(records, commit.producer_id, commit.producer_epoch, guard)
    return True


def _partitions_once(topic: TxnOffsetCommitRequestTopic) -> list[PartitionCommit]:
    partitions = {
        each.partition_index: (
            each.partition_index,
            each.committed_offset,
            each.committed_leader_epoch,
            each.committed_metadata or "",
        )
        for each in topic.partitions
    }
    return list(partitions.values())


class _CommitReply:
    """Turns results into the response, with the names of the topics."""

    __slots__ = ("_context", "_names")

    def __init__(self, context: RequestContext, names: list[str]) -> None:
        self._context = context
        self._names = names

    def send(self, response: Message) -> None:
        assert isinstance(response, CommitResults)
        self._context.send(
            TxnOffsetCommitResponse(
                topics=[
                    TxnOffsetCommitResponseTopic(
                        name=name,
                        partitions=[
                            TxnOffsetCommitResponsePartition(partition_index=index, error_code=code)
                            for index, code in codes
                        ],
                    )
                    for name, codes in zip(self._names, response.topics, strict=True)
                ]
            )
        )


def _send_refusal(
    request: TxnOffsetCommitRequest, error: ApiError, context: RequestContext
) -> None:
    context.run_in_slices(context.send_in_slices(refuse(request, error, context)))


def refuse(
    request: TxnOffsetCommitRequest, error: ApiError, context: RequestContext
) -> TxnOffsetCommitResponse:
    """Return the error for every partition."""
    code = error.code
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and context.version < FIRST_LOAD_IN_PROGRESS:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE  # old clients do not know the other one

    def of_partition(
        partition: TxnOffsetCommitRequestPartition,
    ) -> TxnOffsetCommitResponsePartition:
        return TxnOffsetCommitResponsePartition(
            partition_index=partition.partition_index, error_code=code
        )

    def of_topic(topic: TxnOffsetCommitRequestTopic) -> TxnOffsetCommitResponseTopic:
        return TxnOffsetCommitResponseTopic(
            name=topic.name, partitions=LazyList(of_partition, topic.partitions)
        )

    return TxnOffsetCommitResponse(topics=LazyList(of_topic, request.topics))
