"""A broker in memory whose transaction coordinator is a script, and requests of transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.broker.transaction_verification import Question
from ottla.metadata.records import PartitionRecord, TopicRecord
from ottla.model.errors import ErrorCode
from ottla.model.ids import TRANSACTIONS_TOPIC
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support.broker import BROKER_ID, Broker

TOPIC_ID = bytes(15) + b"\x77"


class ScriptedCoordinator:
    """Notes what it is asked, and answers with `code`, at once unless it is told to wait."""

    def __init__(self) -> None:
        self.code = ErrorCode.NONE
        self.waits = False
        self.asked: list[Question] = []
        self._waiting: list[Callable[[], None]] = []

    def ask(self, question: Question) -> None:
        self.asked.append(question)
        self._waiting.append(lambda: question.refuse(self.code))
        if not self.waits:
            self.answer()

    def answer(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each()

    @property
    def partitions(self) -> list[tuple[str, bool, str, list[int]]]:
        """What was asked: transactional id, whether only to verify, topic and partitions."""
        return [
            (each.transactional_id, each.verify_only, topic.name, list(topic.partitions))
            for question in self.asked
            for each in (question.message(),)
            for topic in each.topics
        ]


def answer_to(request: AddPartitionsToTxnRequest, code: ErrorCode) -> AddPartitionsToTxnResponse:
    """Return the response with the same code for all partitions."""
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(
                                partition_index=index, partition_error_code=code
                            )
                            for index in topic.partitions
                        ],
                    )
                    for topic in each.topics
                ],
            )
            for each in request.transactions
        ]
    )


def with_coordinator(broker: Broker, leader: int = BROKER_ID) -> ScriptedCoordinator:
    """Create `__transaction_state` with one partition, led by a broker with a script."""
    broker.write_metadata(
        TopicRecord(name=TRANSACTIONS_TOPIC, topic_id=TOPIC_ID),
        PartitionRecord(
            partition_id=0,
            topic_id=TOPIC_ID,
            replicas=[leader],
            isr=[leader],
            leader=leader,
            leader_epoch=0,
            partition_epoch=0,
        ),
    )
    coordinator = ScriptedCoordinator()
    broker.node.transaction_verifier.ask_here = coordinator.ask
    return coordinator


def produce(
    *batches: bytes | bytearray,
    transactional_id: str | None = "id",
    topic: str = "t",
    acks: int = -1,
    first_index: int = 0,
) -> ProduceRequest:
    """Return a request with a batch for each partition from the first one on."""
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout=1000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(index=index, records=bytes(batch))
                    for index, batch in enumerate(batches, first_index)
                ],
            )
        ],
    )


def codes_of(response: Any) -> list[int]:
    """Return the error codes of a Produce response."""
    return [each.error_code for topic in response.responses for each in topic.partition_responses]


def markers(
    producer_id: int,
    *,
    commit: bool = True,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
    partitions: dict[str, list[int]] | None = None,
) -> WriteTxnMarkersRequest:
    """Return a request with one marker, for partition 0 of the topic by default."""
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transaction_result=commit,
                coordinator_epoch=coordinator_epoch,
                transaction_version=transaction_version,
                topics=[
                    WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                    for name, indexes in (partitions or {"t": [0]}).items()
                ],
            )
        ]
    )


def fetch_committed(
    topic_id: bytes,
    offset: int = 0,
    *,
    name: str = "t",
    max_wait: int = 0,
    min_bytes: int = 1,
    session: tuple[int, int] = (0, -1),
    isolation_level: int = 1,
) -> FetchRequest:
    """Return a Fetch of partition 0 with read_committed."""
    session_id, session_epoch = session
    return FetchRequest(
        max_wait=max_wait,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[
            FetchTopic(
                topic=name,
                topic_id=topic_id,
                partitions=[
                    FetchPartition(
                        partition=0,
                        fetch_offset=offset,
                        partition_max_bytes=1 << 20,
                        current_leader_epoch=-1,
                        last_fetched_epoch=-1,
                    )
                ],
            )
        ],
    )
