"""Produce in transactions: verification with the coordinator, and what clients are told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.broker.transaction_verification import VERSION
from ottla.metadata.records import BrokerEndpoint, RegisterBrokerRecord
from ottla.model.acl import AclOperation, AclResourceType
from ottla.model.errors import ErrorCode
from ottla.ports import Peer, Response
from ottla.wire.codec import decoder, encoder
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from tests.support.broker import Broker, DenyingOne
from tests.support.log import batch_of
from tests.support.transactional_broker import (
    answer_to,
    codes_of,
    markers,
    produce,
    with_coordinator,
)
from tests.support.transactions import transactional

VERIFYING, ADDING = 11, 12
PRODUCER = 7


def test_the_first_batch_of_a_transaction_is_verified_once(broker: Broker) -> None:
    log = broker.topic().online_log()
    coordinator, client = with_coordinator(broker), broker.connect()
    for sequence in range(3):
        request = produce(transactional(PRODUCER, sequence))
        assert codes_of(client.ask(request, VERIFYING)) == [0]
    assert coordinator.partitions == [("id", True, "t", [0])]
    assert log.producers.ongoing == {PRODUCER: 0}
    client.ask(markers(PRODUCER))
    assert codes_of(client.ask(produce(transactional(PRODUCER, 3)), VERIFYING)) == [0]
    assert len(coordinator.asked) == 2


def test_newer_clients_have_their_partitions_added(broker: Broker) -> None:
    broker.topic()
    coordinator, client = with_coordinator(broker), broker.connect()
    assert codes_of(client.ask(produce(transactional(PRODUCER)), ADDING)) == [0]
    assert coordinator.partitions == [("id", False, "t", [0])]


def test_a_request_waits_for_the_coordinator_and_keeps_its_connection(broker: Broker) -> None:
    log = broker.topic().online_log()
    coordinator, client = with_coordinator(broker), broker.connect()
    coordinator.waits = True
    asked = client.send(produce(transactional(PRODUCER, count=2)), ADDING)
    broker.node.settle()
    assert not client.connection.takes_requests
    other = broker.connect()
    plain = produce(batch_of(1), transactional_id=None)
    assert codes_of(other.ask(plain, ADDING)) == [0]  # only its own connection waits
    client.kept[0][:] = bytes(len(client.kept[0]))  # buffers of requests are used again
    coordinator.answer()
    broker.node.settle()
    ((found, response),) = client.replies()
    assert (found, codes_of(response)) == (asked, [0])
    assert client.connection.takes_requests
    assert log.producers.ongoing == {PRODUCER: 1}


def test_a_request_of_a_closed_connection_is_not_appended(broker: Broker) -> None:
    log = broker.topic().online_log()
    coordinator, client = with_coordinator(broker), broker.connect()
    coordinator.waits = True
    client.send(produce(transactional(PRODUCER)), ADDING)
    broker.node.close_connection(client.connection)
    coordinator.answer()
    broker.node.settle()
    assert log.log_end_offset == 0


def test_without_acks_nothing_is_answered(broker: Broker) -> None:
    log = broker.topic().online_log()
    coordinator, client = with_coordinator(broker), broker.connect()
    coordinator.waits = True
    client.send(produce(transactional(PRODUCER), acks=0), VERIFYING)
    assert not client.connection.takes_requests
    coordinator.answer()
    broker.node.settle()
    assert client.connection.takes_requests
    assert not list(client.replies())
    assert log.log_end_offset == 1


@pytest.mark.parametrize(
    ("code", "version", "told"),
    [
        (ErrorCode.PRODUCER_FENCED, ADDING, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ADDING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, VERIFYING, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, ADDING, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, VERIFYING, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.INVALID_TXN_STATE, VERIFYING, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_what_clients_hear_of_the_coordinator(
    broker: Broker, code: ErrorCode, version: int, told: ErrorCode
) -> None:
    log = broker.topic().online_log()
    coordinator, client = with_coordinator(broker), broker.connect()
    coordinator.code = code
    assert codes_of(client.ask(produce(transactional(PRODUCER)), version)) == [told]
    assert log.log_end_offset == 0
    coordinator.code = ErrorCode.NONE
    assert codes_of(client.ask(produce(transactional(PRODUCER)), version)) == [0]


def test_the_coordinator_is_asked_again_while_the_last_transaction_ends(broker: Broker) -> None:
    broker.topic()
    coordinator, client = with_coordinator(broker), broker.connect()
    coordinator.code = ErrorCode.CONCURRENT_TRANSACTIONS
    client.send(produce(transactional(PRODUCER)), ADDING)
    broker.pass_time(20)
    broker.pass_time(20)
    assert (len(coordinator.asked), list(client.replies())) == (3, [])
    coordinator.code = ErrorCode.NONE
    broker.pass_time(20)
    ((_, response),) = client.replies()
    assert codes_of(response) == [0]


def test_after_a_while_the_client_has_to_retry(broker: Broker) -> None:
    broker.topic()
    coordinator, client = with_coordinator(broker), broker.connect()
    coordinator.code = ErrorCode.CONCURRENT_TRANSACTIONS
    client.send(produce(transactional(PRODUCER)), ADDING)
    for _ in range(6):
        broker.pass_time(20)
    ((_, response),) = client.replies()
    assert codes_of(response) == [ErrorCode.CONCURRENT_TRANSACTIONS]


def test_without_a_coordinator_clients_retry(broker: Broker) -> None:
    broker.topic()
    response = broker.connect().ask(produce(transactional(PRODUCER)), ADDING)
    assert codes_of(response) == [ErrorCode.NOT_ENOUGH_REPLICAS]


def test_verification_can_be_switched_off_for_older_clients() -> None:
    broker = Broker(transaction_partition_verification_enable="false")
    broker.topic()
    coordinator, client = with_coordinator(broker), broker.connect()
    assert codes_of(client.ask(produce(transactional(PRODUCER)), VERIFYING)) == [0]
    assert not coordinator.asked
    assert codes_of(client.ask(produce(transactional(8)), ADDING)) == [0]
    assert len(coordinator.asked) == 1


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE])
def test_a_marker_while_the_coordinator_is_asked_makes_the_answer_void(
    broker: Broker, code: ErrorCode
) -> None:
    broker.topic()
    coordinator, client = with_coordinator(broker), broker.connect()
    coordinator.waits = True
    client.send(produce(transactional(PRODUCER)), VERIFYING)
    broker.connect().ask(markers(PRODUCER, commit=False))
    coordinator.answer()
    broker.node.settle()
    assert len(coordinator.asked) == 2  # it is asked again, about the transaction of now
    coordinator.code = code
    coordinator.answer()
    broker.node.settle()
    ((_, response),) = client.replies()
    assert codes_of(response) == [code]


def test_a_request_has_one_producer_in_transactions(broker: Broker) -> None:
    broker.topic()
    coordinator, client = with_coordinator(broker), broker.connect()
    response = client.ask(produce(transactional(7), transactional(8)), VERIFYING)
    assert codes_of(response) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert not coordinator.asked


def test_partitions_that_cannot_be_written_are_not_asked_about(broker: Broker) -> None:
    broker.topic()
    index = broker.add_partition_elsewhere()
    coordinator, client = with_coordinator(broker), broker.connect()
    batches = [transactional(PRODUCER)] * (index + 1)
    codes = codes_of(client.ask(produce(*batches), VERIFYING))
    assert codes[0] == 0
    assert codes[index] != 0
    assert ("id", True, "t", [0]) in coordinator.partitions


def test_a_fenced_producer_is_refused_without_the_coordinator(broker: Broker) -> None:
    broker.topic()
    coordinator, client = with_coordinator(broker), broker.connect()
    client.ask(markers(PRODUCER, producer_epoch=3))
    response = client.ask(produce(transactional(PRODUCER, producer_epoch=2)), ADDING)
    assert codes_of(response) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert not coordinator.asked


def test_plain_batches_with_a_transactional_id_are_appended(broker: Broker) -> None:
    broker.topic()
    coordinator, client = with_coordinator(broker), broker.connect()
    assert codes_of(client.ask(produce(batch_of(1)), VERIFYING)) == [0]
    assert not coordinator.asked


def test_very_many_partitions_are_verified_together() -> None:
    broker = Broker(num_partitions="510")
    broker.topic()
    coordinator, client = with_coordinator(broker), broker.connect()
    client.send(produce(*[transactional(PRODUCER)] * 510), ADDING)
    for _ in range(1000):
        broker.pass_time(1)
        replies = list(client.replies())
        if replies:
            break
    ((_, response),) = replies
    assert codes_of(response) == [0] * 510
    ((_, _, _, asked),) = coordinator.partitions
    assert sorted(asked) == list(range(510))


def test_a_forbidden_transactional_id_refuses_the_whole_request(broker: Broker) -> None:
    log = broker.topic().online_log()
    coordinator, client = with_coordinator(broker), broker.connect()
    broker.node.pipeline.authorizer = DenyingOne(
        AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, "forbidden"
    )
    request = produce(transactional(PRODUCER), transactional_id="forbidden")
    response = client.ask(request, VERIFYING)
    assert codes_of(response) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    assert not coordinator.asked
    assert not log.producers.verifications
    assert codes_of(client.ask(produce(transactional(PRODUCER)), VERIFYING)) == [0]


# The coordinator on another broker


class ScriptedPeer:
    """A broker that is asked through the network port."""

    on_lost: Callable[[], None] | None = None

    def __init__(self) -> None:
        self.sent: list[AddPartitionsToTxnRequest] = []
        self.waiting: list[Callable[[Response | OSError], None]] = []

    def connect(self, host: str, port: int, client_id: str, longest_backoff_ms: int = 0) -> Peer:
        assert (host, port) == ("elsewhere", 9092)
        return self

    def send(
        self,
        api_key: int,
        api_version: int,
        body: bytes,
        timeout_ms: float,
        done: Callable[[Response | OSError], None],
    ) -> None:
        assert (api_key, api_version) == (24, VERSION)
        request, _ = decoder(AddPartitionsToTxnRequest, VERSION)(body, 0, len(body))
        self.sent.append(request)
        self.waiting.append(done)

    def answer(self, code: ErrorCode) -> None:
        response = answer_to(self.sent[-1], code)
        body = bytearray(encoder(AddPartitionsToTxnResponse, VERSION)(response))
        self.waiting.pop(0)(Response(body, memoryview(body), 0, len(body)))

    def close(self) -> None:
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done(ConnectionAbortedError("the connection was closed"))


def register(broker: Broker, broker_id: int, *, fenced: bool) -> None:
    """Register a broker that the network port leads to."""
    endpoint = BrokerEndpoint(name="PLAINTEXT", host="elsewhere", port=9092, security_protocol=0)
    broker.write_metadata(
        RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=bytes(16),
            broker_epoch=1,
            end_points=[endpoint],
            fenced=fenced,
        )
    )


@pytest.fixture
def elsewhere(broker: Broker) -> ScriptedPeer:
    peer = ScriptedPeer()
    broker.node.ports = broker.node.ports._replace(network=peer)
    broker.topic()
    register(broker, 2, fenced=False)
    with_coordinator(broker, leader=2)
    return peer


def test_questions_of_a_wake_up_go_out_together(broker: Broker, elsewhere: ScriptedPeer) -> None:
    clients = [broker.connect() for _ in range(3)]
    for number, client in enumerate(clients):
        request = produce(transactional(number), transactional_id=f"id-{number}")
        client.send(request, ADDING)
    broker.node.settle()
    (sent,) = elsewhere.sent
    assert [each.transactional_id for each in sent.transactions] == ["id-0", "id-1", "id-2"]
    late = broker.connect()
    late.send(produce(transactional(9), transactional_id="late"), ADDING)
    broker.node.settle()
    assert len(elsewhere.sent) == 1  # one request at a time
    elsewhere.answer(ErrorCode.NONE)
    broker.node.settle()
    for client in clients:
        ((_, response),) = client.replies()
        assert codes_of(response) == [0]
    assert [each.transactional_id for each in elsewhere.sent[1].transactions] == ["late"]
    elsewhere.answer(ErrorCode.PRODUCER_FENCED)
    ((_, response),) = late.replies()
    assert codes_of(response) == [ErrorCode.INVALID_PRODUCER_EPOCH]


def test_an_unreachable_coordinator_makes_clients_retry(
    broker: Broker, elsewhere: ScriptedPeer
) -> None:
    client = broker.connect()
    client.send(produce(transactional(1)), VERIFYING)
    broker.node.settle()
    elsewhere.waiting.pop()(OSError("lost"))
    ((_, response),) = client.replies()
    assert codes_of(response) == [ErrorCode.NOT_ENOUGH_REPLICAS]


def test_what_a_paused_coordinator_was_asked_is_given_up_when_it_is_fenced(
    broker: Broker, elsewhere: ScriptedPeer
) -> None:
    client, late = broker.connect(), broker.connect()
    client.send(produce(transactional(1)), ADDING)
    broker.node.settle()
    late.send(produce(transactional(9), transactional_id="late"), ADDING)
    broker.node.settle()
    register(broker, 3, fenced=False)  # another broker changes nothing
    broker.node.settle()
    assert not list(client.replies())
    register(broker, 2, fenced=True)
    broker.node.settle()
    for each in (client, late):
        ((_, response),) = each.replies()
        assert codes_of(response) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert len(elsewhere.sent) == 1
