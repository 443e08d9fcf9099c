"""WriteTxnMarkers: the markers in the log, an answer for each partition, and who may send it."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.context import RequestContext
from ottla.broker.transaction_markers import MOST_OPEN
from ottla.broker.transactions import BrokerRoutes
from ottla.metadata.records import BrokerFeature, RegisterBrokerRecord
from ottla.model.acl import AclOperation, AclResourceType
from ottla.model.errors import ErrorCode
from ottla.model.transactions import TransactionEnd
from ottla.records.record import build_batch
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from tests.support.broker import Broker
from tests.support.helper_tasks import Helpers
from tests.support.log import NOW, read_all
from tests.support.transactional_broker import codes_of, markers, produce, with_coordinator
from tests.support.transactions import read_committed, transactional

PRODUCER = 7
GZIP = 1


def codes(response: Any) -> dict[tuple[int, str, int], int]:
    return {
        (marker.producer_id, topic.name, partition.partition_index): partition.error_code
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_ends_the_transaction(broker: Broker, version: int, commit: bool) -> None:
    log = broker.topic().online_log()
    with_coordinator(broker)
    client = broker.connect()
    client.ask(produce(transactional(PRODUCER, count=3)), 11)
    assert (log.last_stable_offset, log.high_watermark) == (0, 3)
    response = client.ask(markers(PRODUCER, commit=commit, coordinator_epoch=4), version)
    assert codes(response) == {(PRODUCER, "t", 0): 0}
    assert log.last_stable_offset == 4
    assert [batch.is_control for batch in read_all(log)] == [False, True]
    assert len(read_committed(log)) == commit


def test_many_markers_have_an_answer_for_each_partition(broker: Broker) -> None:
    broker.topic()
    broker.topic("u")
    elsewhere = broker.add_partition_elsewhere("u")
    client = broker.connect()
    client.ask(markers(8, producer_epoch=5, coordinator_epoch=5, partitions={"t": [0]}))
    request = WriteTxnMarkersRequest(
        markers=[
            *markers(7, partitions={"t": [0], "u": [0, elsewhere]}).markers,
            *markers(8, producer_epoch=4, coordinator_epoch=5, partitions={"t": [0]}).markers,
            *markers(8, producer_epoch=6, coordinator_epoch=5, partitions={"u": [0]}).markers,
            *markers(9, partitions={"unknown": [0], "t": [3000]}).markers,
        ]
    )
    assert codes(client.ask(request)) == {
        (7, "t", 0): 0,
        (7, "u", 0): 0,
        (7, "u", elsewhere): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        (8, "t", 0): ErrorCode.INVALID_PRODUCER_EPOCH,
        (8, "u", 0): 0,
        (9, "unknown", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (9, "t", 3000): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_old_coordinators_are_refused(broker: Broker) -> None:
    broker.topic()
    client = broker.connect()
    client.ask(markers(PRODUCER, coordinator_epoch=2))
    response = client.ask(markers(PRODUCER, coordinator_epoch=1))
    assert set(codes(response).values()) == {ErrorCode.TRANSACTION_COORDINATOR_FENCED}


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(-1, 0), (-(2**63), 0), (7, -1)])
def test_markers_of_no_producer_are_refused(
    broker: Broker, producer_id: int, producer_epoch: int
) -> None:
    log = broker.topic().online_log()
    request = markers(producer_id, producer_epoch=producer_epoch)
    response = broker.connect().ask(request)
    assert set(codes(response).values()) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert log.log_end_offset == 0


def test_a_request_without_markers_is_answered(broker: Broker) -> None:
    assert broker.connect().ask(WriteTxnMarkersRequest()).markers == []


def test_the_answer_waits_for_the_followers(broker: Broker) -> None:
    partition = broker.topic_with()
    log, client = partition.online_log(), broker.connect()
    client.send(markers(PRODUCER))
    broker.node.settle()
    assert not list(client.replies())
    assert partition.leader is not None
    partition.leader.record_fetch(2, 1, 0)
    broker.node.settle()
    ((_, response),) = client.replies()
    assert codes(response) == {(PRODUCER, "t", 0): 0}
    assert log.high_watermark == 1


def test_followers_that_do_not_come_end_in_a_timeout(broker: Broker) -> None:
    broker.topic_with()
    client = broker.connect()
    client.send(markers(PRODUCER))
    broker.node.settle()
    broker.pass_time(30_001)
    ((_, response),) = client.replies()
    assert codes(response) == {(PRODUCER, "t", 0): ErrorCode.REQUEST_TIMED_OUT}


def of_many_producers() -> WriteTxnMarkersRequest:
    """Return a request with more markers than may be uncommitted at a time."""
    producers = range(PRODUCER, PRODUCER + 3 * MOST_OPEN)
    return WriteTxnMarkersRequest(
        markers=[marker for each in producers for marker in markers(each).markers]
    )


def test_very_many_markers_wait_for_each_other(broker: Broker) -> None:
    partition = broker.topic_with()
    log, client = partition.online_log(), broker.connect()
    client.send(of_many_producers())
    assert partition.leader is not None
    while not (replies := list(client.replies())):
        broker.node.settle()
        assert log.log_end_offset - log.high_watermark <= MOST_OPEN
        partition.leader.record_fetch(2, log.written_end, 0)
        broker.pass_time(1)
    assert set(codes(replies[0][1]).values()) == {ErrorCode.NONE}
    assert len(codes(replies[0][1])) == log.log_end_offset == 3 * MOST_OPEN


def test_garbage_collections_wait_for_the_answer_to_very_many_markers(broker: Broker) -> None:
    partition = broker.topic_with()
    pauses: list[int] = []
    broker.node.pause_collection = lambda is_paused: pauses.append(1 if is_paused else -1)
    client = broker.connect()
    client.send(of_many_producers())
    assert partition.leader is not None
    while not list(client.replies()):
        assert sum(pauses) == 1
        broker.node.settle()
        partition.leader.record_fetch(2, partition.online_log().written_end, 0)
        broker.pass_time(1)
    assert sum(pauses) == 0
    pauses.clear()
    client.send(markers(PRODUCER))
    assert pauses == [], "few objects need no pause"


def test_very_many_markers_are_all_written_and_answered_after_the_timeout(broker: Broker) -> None:
    partition = broker.topic_with()
    client = broker.connect()
    client.send(of_many_producers())
    broker.pass_time(30_001)
    while not (replies := list(client.replies())):
        broker.pass_time(1)
    assert set(codes(replies[0][1]).values()) == {ErrorCode.REQUEST_TIMED_OUT}
    assert len(codes(replies[0][1])) == 3 * MOST_OPEN
    assert partition.online_log().log_end_offset == 3 * MOST_OPEN


def test_markers_of_internal_topics_go_to_whoever_must_know(broker: Broker) -> None:
    broker.topic("internal")
    found: list[tuple[int, TransactionEnd]] = []

    def write(index: int, end: TransactionEnd, done: Any) -> None:
        found.append((index, end))
        done(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    broker.node.marker_writers["internal"] = write
    request = markers(PRODUCER, transaction_version=2, partitions={"internal": [0]})
    response = broker.connect().ask(request)
    assert codes(response) == {(PRODUCER, "internal", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert found == [(0, TransactionEnd(PRODUCER, 0, 0, True, 2))]


class _OnlyFor:
    """Allows one operation on the cluster."""

    def __init__(self, *operations: AclOperation) -> None:
        self._operations = operations

    def check(self, context: RequestContext) -> None:
        pass

    def allows(
        self,
        context: RequestContext,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
    ) -> bool:
        return resource_type is AclResourceType.CLUSTER and operation in self._operations


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        (AclOperation.ALTER, 0),
        (AclOperation.CLUSTER_ACTION, 0),
        (AclOperation.DESCRIBE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_brokers_and_administrators_may_write_markers(
    broker: Broker, operation: AclOperation, code: int
) -> None:
    log = broker.topic().online_log()
    broker.node.pipeline.authorizer = _OnlyFor(operation)
    assert codes(broker.connect().ask(markers(PRODUCER))) == {(PRODUCER, "t", 0): code}
    assert log.log_end_offset == (0 if code else 1)


def test_open_transactions_are_described(broker: Broker) -> None:
    broker.topic()
    with_coordinator(broker)
    client = broker.connect()
    client.ask(markers(PRODUCER, coordinator_epoch=6))
    client.ask(produce(transactional(PRODUCER)), 11)
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
    ((partition,),) = [topic.partitions for topic in client.ask(request).topics]
    (producer,) = partition.active_producers
    assert (producer.producer_id, producer.coordinator_epoch) == (PRODUCER, 6)
    assert producer.current_txn_start_offset == 1


def test_a_marker_waits_behind_batches_that_a_helper_process_looks_at(broker: Broker) -> None:
    """Offsets are given in the order of arrival, whoever appends."""
    log = broker.topic().online_log()
    with_coordinator(broker)
    helpers = Helpers()
    broker.node.ports = broker.node.ports._replace(helpers=helpers)
    client, other = broker.connect(), broker.connect()
    records = [(b"k", bytes([number % 251]) * 400, NOW, ()) for number in range(200)]
    slow = build_batch(records, codec=GZIP, producer_id=PRODUCER, producer_epoch=0,
                       base_sequence=0, is_transactional=True)  # fmt: skip
    client.send(produce(slow), 11)
    other.send(markers(PRODUCER))
    broker.node.settle()
    assert (log.log_end_offset, list(other.replies())) == (0, [])
    helpers.finish()
    broker.node.settle()
    assert codes_of(next(client.replies())[1]) == [0]
    assert codes(next(other.replies())[1]) == {(PRODUCER, "t", 0): 0}
    assert [(b.base_offset, b.is_control) for b in read_all(log)] == [(0, False), (200, True)]
    assert log.producers.ongoing == {}


@pytest.mark.parametrize(("level", "version"), [(27, 1), (29, 2), (30, 2)])
def test_a_broker_gets_the_version_that_it_understands(
    broker: Broker, level: int, version: int
) -> None:
    """Kafka 4.1 registers metadata version 27 as its highest one, Kafka 4.2 registers 29."""
    feature = BrokerFeature(
        name="metadata.version", min_supported_version=7, max_supported_version=level
    )
    broker.write_metadata(
        RegisterBrokerRecord(
            broker_id=5, incarnation_id=bytes(16), broker_epoch=1, features=[feature]
        )
    )
    assert BrokerRoutes(broker.node).version(5) == version
