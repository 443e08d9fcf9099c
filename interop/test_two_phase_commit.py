"""Two-phase commit (KIP-939): Ottla's answers are those of Apache Kafka.

Kafka's brokers have the version of InitProducerId for it only with unstable versions. No client of
Kafka 4.3 sends it: Java's producer has the setting, and asks in version 5 all the same. So the
requests are sent without a client. Kafka 4.3 cannot keep a prepared transaction either.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.model.errors import ErrorCode
from ottla.wire.message import Message
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from compare.client import Client

pytestmark = pytest.mark.timeout(300)
TOPIC, ID = "t", "tx"
SETTINGS = {
    "transaction.max.timeout.ms": "60000",
}
UNSTABLE = {"unstable.api.versions.enable": "true"}
WAIT_S = 60.0


@pytest.fixture(autouse=True)
def _needs_kafka(kafka_tool: object) -> None:
    """Skip without the jars of Kafka."""


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_the_answers_are_those_of_kafka(enabled: str, tmp_path: Path) -> None:
    from compare.client import Client
    from compare.systems import KAFKA_VERSION, SmallKafka, ottla, running

    more = SETTINGS | {"transaction.two.phase.commit.enable": enabled}
    answers = []
    for broker in (
        SmallKafka(KAFKA_VERSION).new_broker(tmp_path / "kafka", more | UNSTABLE),
        ottla(tmp_path / "ottla", more),
    ):
        with running(broker):
            client = Client(broker.port)
            answers.append(list(Dialogue(client).answers()))
            client.close()
    assert answers[0] == answers[1]


def state_of(client: Client, transactional_id: str) -> tuple[str, int, int]:
    """Return the state of a transactional id, its timeout and its epoch."""
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    answer: Any = client.get(request, 0)
    (found,) = answer.transaction_states
    return found.transaction_state, found.transaction_timeout, found.producer_epoch


_INITS: list[dict[str, Any]] = [
    {"enable2_pc": True, "keep_prepared_txn": True},
    {"keep_prepared_txn": True},
    {"keep_prepared_txn": True, "timeout": 0},
    {"enable2_pc": True, "keep_prepared_txn": True, "transactional_id": "other"},
    {"enable2_pc": True, "timeout": 0, "transactional_id": "other"},
    {"enable2_pc": True, "timeout": 2**31 - 1, "transactional_id": "other"},
    {"timeout": 2**31 - 1, "transactional_id": "other"},
    {"enable2_pc": True, "keep_prepared_txn": True, "transactional_id": None},
]
"""The fields of requests that come while a transaction is open."""


class Dialogue:
    """Requests about two-phase commits to one broker."""

    def __init__(self, client: Client) -> None:
        self._client = client
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        self._ask(CreateTopicsRequest(topics=[topic], timeout=5000), 5)
        self._ask(FindCoordinatorRequest(key=ID, key_type=1), 3)

    def answers(self) -> Iterator[tuple[str, Any]]:
        """Send all requests, and iterate over what the answers say."""
        first = self._init(timeout=60_000)
        yield "first", _brief(first)
        two_phase = self._init(timeout=1, enable2_pc=True)
        yield "two-phase", _brief(two_phase)
        producer = two_phase if not two_phase.error_code else first
        yield "added", self._add(producer)
        yield "ongoing", state_of(self._client, ID)[:2]
        for fields in _INITS:
            yield str(fields), _brief(self._init(**fields))
        yield "end", self._end(producer)
        yield "again", _brief(self._init(enable2_pc=True))
        yield "plain", _brief(self._init(timeout=1234))
        yield "state", state_of(self._client, ID)

    def _init(self, *, timeout: int = 60_000, **fields: Any) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            **{"transactional_id": ID, "transaction_timeout": timeout, **fields}
        )
        answer = self._ask(request, 6)
        assert isinstance(answer, InitProducerIdResponse)
        return answer

    def _add(self, producer: InitProducerIdResponse) -> int:
        answer: Any = self._ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=ID,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
            ),
            3,
        )
        (topic,) = answer.results_by_topic_v3_and_below
        return int(topic.results_by_partition[0].partition_error_code)

    def _end(self, producer: InitProducerIdResponse) -> int:
        answer: Any = self._ask(
            EndTxnRequest(
                transactional_id=ID,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                committed=True,
            ),
            4,
        )
        return int(answer.error_code)

    def _ask(self, request: Message, version: int) -> Message:
        """Ask until the coordinator is there and has ended what it is busy with."""
        deadline = time.monotonic() + WAIT_S
        while True:
            answer: Message = self._client.get(request, version)
            if getattr(answer, "error_code", 0) not in _BUSY:
                return answer
            assert time.monotonic() < deadline
            time.sleep(0.05)


_BUSY = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


def _brief(answer: InitProducerIdResponse) -> tuple[int, ...]:
    return (
        answer.error_code,
        answer.producer_epoch,
        answer.ongoing_txn_producer_id,
        answer.ongoing_txn_producer_epoch,
    )
