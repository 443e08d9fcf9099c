"""Hanging transactions: which ones are found, and the marker that ends one."""

from __future__ import annotations

import pytest

from ottla.client.errors import ClientError, Refused
from ottla.client.transactions.hanging_transactions import hanging
from ottla.client.transactions.open_transactions import (
    OpenTransaction,
    abort_on_partition,
    open_transactions,
)
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.api_table import ApiKey
from ottla.wire.messages import describe_transactions as dt
from ottla.wire.messages import list_transactions as lt
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.support.scripted_broker import Connect, FakeBroker

PARTITION = TopicPartition("t", 0)


def opened(producer_id: int, partition: TopicPartition = PARTITION) -> OpenTransaction:
    return OpenTransaction(partition, producer_id, 0, -1, 5, 1000)


def show_open(broker: FakeBroker, *transactions: OpenTransaction) -> None:
    """Let a broker lead the partitions of `t`, with these open transactions."""

    def describe(request: DescribeProducersRequest) -> DescribeProducersResponse:
        (topic,) = request.topics
        partitions = [
            PartitionResponse(
                partition_index=index,
                active_producers=[
                    ProducerState(
                        producer_id=each.producer_id, current_txn_start_offset=each.start_offset
                    )
                    for each in transactions
                    if each.partition == TopicPartition("t", index)
                ],
            )
            for index in topic.partition_indexes
        ]
        return DescribeProducersResponse(topics=[TopicResponse(name="t", partitions=partitions)])

    broker.add_topic("t", 2)
    broker.handlers[ApiKey.DESCRIBE_PRODUCERS] = describe


def test_producers_with_a_transaction_are_found(fake_broker: FakeBroker, connect: Connect) -> None:
    fake_broker.add_topic("t", 2)

    def describe(request: DescribeProducersRequest) -> DescribeProducersResponse:
        (topic,) = request.topics
        idle = ProducerState(producer_id=1, current_txn_start_offset=-1)
        busy = ProducerState(
            producer_id=2,
            producer_epoch=3,
            coordinator_epoch=4,
            current_txn_start_offset=5,
            last_timestamp=6,
        )
        return DescribeProducersResponse(
            topics=[
                TopicResponse(
                    name="t",
                    partitions=[
                        PartitionResponse(partition_index=index, active_producers=[idle, busy])
                        for index in topic.partition_indexes
                    ],
                )
            ]
        )

    fake_broker.handlers[ApiKey.DESCRIBE_PRODUCERS] = describe
    with connect(fake_broker.address) as client:
        found = open_transactions(client, "t", [1])
        assert found == [OpenTransaction(TopicPartition("t", 1), 2, 3, 4, 5, 6)]
        assert len(open_transactions(client, "t")) == 2


def test_what_coordinators_know_does_not_hang(fake_broker: FakeBroker, connect: Connect) -> None:
    states = {7: ("a", "Ongoing"), 8: ("b", "CompleteCommit"), 9: ("c", "PrepareAbort")}

    def listed(request: lt.ListTransactionsRequest) -> lt.ListTransactionsResponse:
        assert request.producer_id_filters == [6, 7, 8, 9]
        return lt.ListTransactionsResponse(
            transaction_states=[
                lt.TransactionState(transactional_id=name, producer_id=producer_id)
                for producer_id, (name, _) in states.items()
            ]
        )

    def described(request: dt.DescribeTransactionsRequest) -> dt.DescribeTransactionsResponse:
        return dt.DescribeTransactionsResponse(
            transaction_states=[
                dt.TransactionState(
                    transactional_id=name,
                    producer_id=producer_id,
                    transaction_state=state,
                    topics=[dt.TopicData(topic="t", partitions=[0])],
                )
                for producer_id, (name, state) in states.items()
            ]
        )

    fake_broker.handlers[ApiKey.LIST_TRANSACTIONS] = listed
    fake_broker.handlers[ApiKey.DESCRIBE_TRANSACTIONS] = described
    elsewhere = opened(7, TopicPartition("t", 1))
    candidates = [opened(6), opened(7), opened(8), opened(9), elsewhere]
    show_open(fake_broker, *candidates)
    with connect(fake_broker.address) as client:
        assert hanging(client, candidates) == [opened(6), opened(8), elsewhere]
        assert hanging(client, []) == []


def test_a_partition_that_is_not_there_is_named_at_once(
    fake_broker: FakeBroker, connect: Connect
) -> None:
    fake_broker.add_topic("t", 2)
    with connect(fake_broker.address) as client:
        for ask in (
            lambda: open_transactions(client, "t", [7]),
            lambda: abort_on_partition(client, TopicPartition("t", 7), 7, 3, -1),
        ):
            with pytest.raises(ClientError, match="topic t has no partition 7: its partitions are"):
                ask()


def test_what_ends_meanwhile_does_not_hang(fake_broker: FakeBroker, connect: Connect) -> None:
    """The transaction of 6 has ended, that of 7 too and the next has begun; the id of 8 expires."""
    listing = lt.ListTransactionsResponse(
        transaction_states=[lt.TransactionState(transactional_id="gone", producer_id=8)]
    )
    unknown = dt.TransactionState(
        transactional_id="gone", error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    )
    fake_broker.handlers[ApiKey.LIST_TRANSACTIONS] = lambda request: listing
    fake_broker.handlers[ApiKey.DESCRIBE_TRANSACTIONS] = lambda request: (
        dt.DescribeTransactionsResponse(transaction_states=[unknown])
    )
    show_open(fake_broker, opened(7)._replace(start_offset=9), opened(8))
    with connect(fake_broker.address) as client:
        assert hanging(client, [opened(6), opened(7), opened(8)]) == [opened(8)]


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_marker_aborts_the_transaction(
    fake_broker: FakeBroker, connect: Connect, code: ErrorCode
) -> None:
    fake_broker.add_topic("t", 1)

    def write(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        (marker,) = request.markers
        assert (marker.producer_id, marker.producer_epoch) == (7, 3)
        assert (marker.coordinator_epoch, marker.transaction_result) == (0, False)
        result = WritableTxnMarkerPartitionResult(partition_index=0, error_code=code)
        topic = WritableTxnMarkerTopicResult(name="t", partitions=[result])
        return WriteTxnMarkersResponse(
            markers=[WritableTxnMarkerResult(producer_id=7, topics=[topic])]
        )

    fake_broker.handlers[ApiKey.WRITE_TXN_MARKERS] = write
    with connect(fake_broker.address) as client:
        if code:
            with pytest.raises(Refused, match="INVALID_PRODUCER_EPOCH"):
                abort_on_partition(client, PARTITION, 7, 3, -1)
        else:
            abort_on_partition(client, PARTITION, 7, 3, -1)
