"""The requests of a transactional producer (KIP-98), without the records.

Versions are those of transaction version 1, which every broker since Kafka 0.11 understands: the
producer adds partitions itself, and the epoch stays the same until the next `begin`. So whoever
knows the transactional id, the producer id and the epoch can end the transaction, from any process.
Every request here may be repeated: the second one does nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from ottla.client.cluster import Client
from ottla.client.connection import Connection
from ottla.client.deadline import Deadline
from ottla.client.errors import RETRIABLE, Refused, check
from ottla.client.groups.coordinators import TRANSACTION, by_coordinator, on_coordinator
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

T = TypeVar("T")
LAST_INIT_VERSION = 5
LAST_ADD_PARTITIONS_VERSION = 3
LAST_ADD_OFFSETS_VERSION = 3
LAST_OFFSET_COMMIT_VERSION = 4
LAST_END_VERSION = 4
LAST_PRODUCE_VERSION = 11
"""From version 12 on, Produce adds partitions to the transaction by itself (KIP-890)."""

_NO_GENERATION = -1
_ADVICE = {
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "the broker allows transaction.max.timeout.ms at most",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "this user may not use the transactional id",
}


class TransactionalProducer(NamedTuple):
    """A transactional id with the producer id and epoch that the coordinator gave it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


def begin(client: Client, transactional_id: str, timeout_ms: int) -> TransactionalProducer:
    """Take over a transactional id: its open transaction is aborted, older producers are fenced."""
    deadline = client.deadline(f"starting transactions of {transactional_id}")
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout=timeout_ms
    )

    def ask(connection: Connection) -> TransactionalProducer:
        answer = client.call(
            connection, request, InitProducerIdResponse, deadline, at_most=LAST_INIT_VERSION
        )
        _check(answer.error_code, transactional_id)
        return TransactionalProducer(transactional_id, answer.producer_id, answer.producer_epoch)

    return _on_coordinator(client, transactional_id, ask, deadline)


def add_partitions(
    client: Client, producer: TransactionalProducer, partitions: Iterable[TopicPartition]
) -> None:
    """Add partitions to the transaction, before records are sent to them."""
    deadline = client.deadline(f"adding partitions to the transaction of {producer[0]}")
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        by_topic[topic].append(partition)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=indexes)
            for topic, indexes in by_topic.items()
        ],
    )

    def ask(connection: Connection) -> None:
        answer = client.call(
            connection,
            request,
            AddPartitionsToTxnResponse,
            deadline,
            at_most=LAST_ADD_PARTITIONS_VERSION,
        )
        codes = {
            found.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for found in topic.results_by_partition
        }
        # Where one partition is refused, the others are OPERATION_NOT_ATTEMPTED.
        codes -= {int(ErrorCode.NONE), int(ErrorCode.OPERATION_NOT_ATTEMPTED)}
        for code in sorted(codes):
            _check(code, producer.transactional_id)

    _on_coordinator(client, producer.transactional_id, ask, deadline)


def commit_offsets(
    client: Client,
    producer: TransactionalProducer,
    group: str,
    offsets: Mapping[TopicPartition, tuple[int, str]],
) -> None:
    """Set offsets of a group, with their metadata, as part of the transaction."""
    deadline = client.deadline(f"adding offsets to the transaction of {producer[0]}")
    add = AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        group_id=group,
    )

    def ask_to_add(connection: Connection) -> None:
        answer = client.call(
            connection, add, AddOffsetsToTxnResponse, deadline, at_most=LAST_ADD_OFFSETS_VERSION
        )
        _check(answer.error_code, producer.transactional_id)

    _on_coordinator(client, producer.transactional_id, ask_to_add, deadline)
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        generation_id=_NO_GENERATION,
        topics=_topics(offsets),
    )

    def ask(connection: Connection) -> None:
        answer = client.call(
            connection,
            request,
            TxnOffsetCommitResponse,
            deadline,
            at_most=LAST_OFFSET_COMMIT_VERSION,
        )
        for topic in answer.topics:
            for found in topic.partitions:
                subject = f"the offset of group {group} for {topic.name}-{found.partition_index}"
                check(found.error_code, subject)

    on_coordinator(client, group, ask, deadline, harmless_twice=True)


def end(client: Client, producer: TransactionalProducer, *, commit: bool) -> None:
    """Commit or abort the transaction."""
    (error,) = end_all(client, [producer], commit=commit)
    if error is not None:
        raise error


def end_all(
    client: Client, producers: Sequence[TransactionalProducer], *, commit: bool
) -> list[Refused | None]:
    """Commit or abort the transactions of different ids. Return why each was refused, or None."""
    what = "committing" if commit else "aborting"
    deadline = client.deadline(f"{what} {len(producers)} transactions")
    outcomes: dict[TransactionalProducer, Refused | None] = {}

    def attempt() -> None:
        open_ones = [each for each in producers if each not in outcomes]
        by_id = {each.transactional_id: each for each in open_ones}
        for coordinator, ids in by_coordinator(client, list(by_id), deadline, TRANSACTION).items():
            connection = client.node(coordinator.node_id, deadline)
            _end_on(client, connection, [by_id[each] for each in ids], commit, outcomes, deadline)
        left = [each for each in producers if each not in outcomes]
        if left:
            code = ErrorCode.NOT_COORDINATOR
            raise Refused(code, f"{what} the transaction of {left[0].transactional_id}")

    if producers:
        client.retry(attempt, deadline, harmless_twice=True)
    return [outcomes[each] for each in producers]


def _end_on(
    client: Client,
    connection: Connection,
    producers: Sequence[TransactionalProducer],
    commit: bool,
    outcomes: dict[TransactionalProducer, Refused | None],
    deadline: Deadline,
) -> None:
    """End transactions on one coordinator, all requests at once. Note all that have an outcome."""
    try:
        for each in producers:
            request = EndTxnRequest(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                committed=commit,
            )
            connection.send(request, deadline, at_most=LAST_END_VERSION)
        for each in producers:
            code = connection.receive(EndTxnResponse, deadline).error_code
            if code == ErrorCode.NONE:
                outcomes[each] = None
            elif code not in RETRIABLE:
                outcomes[each] = Refused(code, f"the transaction of {each.transactional_id}")
    except BaseException:
        client.drop(connection)
        raise


def _topics(
    offsets: Mapping[TopicPartition, tuple[int, str]],
) -> list[TxnOffsetCommitRequestTopic]:
    by_topic: defaultdict[str, list[TxnOffsetCommitRequestPartition]] = defaultdict(list)
    for (topic, partition), (offset, metadata) in offsets.items():
        by_topic[topic].append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=metadata
            )
        )
    return [
        TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)
        for topic, partitions in by_topic.items()
    ]


def _on_coordinator(
    client: Client, transactional_id: str, ask: Callable[[Connection], T], deadline: Deadline
) -> T:
    return on_coordinator(
        client, transactional_id, ask, deadline, harmless_twice=True, key_type=TRANSACTION
    )


def _check(code: int, transactional_id: str) -> None:
    advice = next((text for known, text in _ADVICE.items() if known == code), None)
    check(code, f"the transaction of {transactional_id}", advice)
