"""Transactions while their coordinators and leaders die: every decision is carried out, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.coordinator.runtime.partitioner import partition_of
from ottla.model.errors import ErrorCode
from ottla.model.ids import TRANSACTIONS_TOPIC
from ottla.records.batch import scan
from ottla.records.control import ControlType, control_type
from ottla.records.record import build_batch, records_of
from ottla.sim.cluster import SimCluster
from ottla.wire.message import Message
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.sim.test_membership import unfenced
from tests.sim.test_quorum_of_several import NODES
from tests.sim.test_replication import create, image

ID = "payments"
STATE_PARTITIONS = 4
RETRIED = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
)


class TransactionalClient:
    """A producer of transaction version 2, or of an older one, that asks again after errors."""

    def __init__(self, seed: int, *, is_new: bool = True) -> None:
        settings = {
            "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
            "transaction.state.log.replication.factor": "3",
            "offsets.topic.num.partitions": "4",
            "offsets.topic.replication.factor": "3",
        }
        self.cluster = cluster = SimCluster(3, seed, settings, are_one_cluster=True)
        cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES))
        self.is_new = is_new
        self.producer = (-1, -1)
        self.sequence = 0
        create(cluster, "t")
        self.coordinator()
        cluster.run_for(500)

    # -- brokers -------------------------------------------------------------------------

    def alive(self) -> list[int]:
        return [n for n in NODES if self.cluster.is_running(n)]

    def coordinator(self) -> int:
        """Return the coordinator of the transactional id, once there is one."""
        return self.find(ID, key_type=1)

    def find(self, key: str, key_type: int) -> int:
        """Return the coordinator of a transactional id (1) or a group (0), once there is one."""
        for _ in range(300):
            number = self.alive()[0]
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            response: Any = self.cluster.ask(number, request, 4)
            (found,) = response.coordinators
            if found.error_code == ErrorCode.NONE and self.cluster.is_running(found.node_id):
                return int(found.node_id)
            self.cluster.run_for(20)
        raise AssertionError("no coordinator was found")

    def leader(self) -> int:
        """Return the leader of the partition, once there is one."""
        self.cluster.run_until(
            lambda: self.cluster.is_running(image(self.cluster, self.alive()[0], "t").leader)
        )
        return image(self.cluster, self.alive()[0], "t").leader

    def kill(self, number: int) -> None:
        """Kill a broker, and wait until the others know it."""
        self.cluster.kill(number)
        others = self.alive()
        self.cluster.run_until(
            lambda: all(unfenced(self.cluster, n) == set(others) for n in others)
        )

    # -- requests ------------------------------------------------------------------------

    def ask(
        self,
        to: Callable[[], int],
        request: Message,
        version: int,
        code_of: Callable[[Any], int] = lambda response: int(response.error_code),
    ) -> Any:
        """Return the answer that is not an error to be tried again."""
        for _ in range(400):
            response = self.cluster.ask(to(), request, version)
            if code_of(response) not in RETRIED:
                assert code_of(response) == ErrorCode.NONE, response
                return response
            self.cluster.run_for(20)
        raise AssertionError(f"{request} was refused for too long")

    def init(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=ID, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1
        )
        response = self.ask(self.coordinator, request, 5)
        self.producer = (response.producer_id, response.producer_epoch)
        self.sequence = 0

    def write(self, value: bytes) -> None:
        if not self.is_new:
            self._add()
        batch = bytes(
            build_batch(
                [(None, value, 1_000, ())],
                producer_id=self.producer[0],
                producer_epoch=self.producer[1],
                base_sequence=self.sequence,
                is_transactional=True,
            )
        )
        data = PartitionProduceData(index=0, records=batch)
        request = ProduceRequest(
            transactional_id=ID,
            acks=-1,
            timeout=5_000,
            topic_data=[TopicProduceData(name="t", partition_data=[data])],
        )
        self.ask(
            self.leader,
            request,
            12 if self.is_new else 11,
            lambda response: int(response.responses[0].partition_responses[0].error_code),
        )
        self.sequence += 1

    def _add(self) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self.producer[0],
            v3_and_below_producer_epoch=self.producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        )
        self.ask(
            self.coordinator,
            request,
            3,
            lambda response: int(
                response.results_by_topic_v3_and_below[0]
                .results_by_partition[0]
                .partition_error_code
            ),
        )

    def end(self, *, committed: bool) -> None:
        request = EndTxnRequest(
            transactional_id=ID,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            committed=committed,
        )
        response = self.ask(self.coordinator, request, 5 if self.is_new else 3)
        if self.is_new:
            self.producer = (response.producer_id, response.producer_epoch)
            self.sequence = 0

    # -- state ---------------------------------------------------------------------------

    def state(self) -> str:
        """Return the state of the transactional id, as its coordinator says."""
        response = self.ask(
            self.coordinator,
            DescribeTransactionsRequest(transactional_ids=[ID]),
            0,
            lambda response: int(response.transaction_states[0].error_code),
        )
        return str(response.transaction_states[0].transaction_state)

    def settle(self) -> None:
        """Wait until the transaction is complete, and no partition has one open."""
        for _ in range(400):
            if self.state() in ("Empty", "CompleteCommit", "CompleteAbort"):
                break
            self.cluster.run_for(20)
        log = self.cluster.node(self.leader()).topics.partition_named("t", 0).online_log()
        self.cluster.run_until(lambda: log.last_stable_offset == log.log_end_offset)

    def committed_values(self) -> list[bytes]:
        """Return what a read_committed consumer sees: the values before a commit marker."""
        log = self.cluster.node(self.leader()).topics.partition_named("t", 0).online_log()
        values: list[bytes] = []
        pending: dict[int, list[bytes]] = {}
        offset = 0
        while offset < log.last_stable_offset:
            piece = log.read(offset, 1 << 20, log.last_stable_offset, at_least_one=True)
            assert piece is not None
            data = piece.read()
            for batch in scan(data, 0, len(data)):
                offset = batch.next_offset
                for _, _, key, value, _ in records_of(data[batch.position : batch.end]):
                    if not batch.is_control:
                        pending.setdefault(batch.producer_id, []).append(value or b"")
                        continue
                    ended = pending.pop(batch.producer_id, [])
                    if control_type(key) is ControlType.COMMIT:
                        values += ended
        assert not pending, "no transaction is open"
        return values


@pytest.mark.parametrize("is_new", [True, False], ids=["version 2", "version 0"])
@pytest.mark.parametrize("step", ["init", "write", "decide", "complete"])
def test_the_coordinator_dies_after(step: str, is_new: bool) -> None:
    client = TransactionalClient(seed=7, is_new=is_new)
    for number, committed in enumerate((True, False, True)):
        is_last = number == 2
        if number == 0:
            client.init()
        if is_last and step == "init":
            client.kill(client.coordinator())
        client.write(b"%d" % number)
        if is_last and step == "write":
            client.kill(client.coordinator())
        client.end(committed=committed)
        if is_last and step == "decide":
            client.kill(client.coordinator())
    if step == "complete":
        client.settle()
        client.kill(client.coordinator())
    client.settle()
    assert client.committed_values() == [b"0", b"2"]
    client.write(b"after")
    client.end(committed=True)
    client.settle()
    assert client.committed_values() == [b"0", b"2", b"after"]


@pytest.mark.parametrize("seed", range(3))
def test_the_leader_dies_before_its_marker(seed: int) -> None:
    client = TransactionalClient(seed)
    client.init()
    client.write(b"kept")
    client.kill(client.leader())
    client.end(committed=True)
    client.settle()
    assert client.committed_values() == [b"kept"]


@pytest.mark.parametrize("seed", range(3))
def test_a_leader_that_is_cut_off_gets_no_marker_but_its_successor_does(seed: int) -> None:
    client = TransactionalClient(seed)
    client.init()
    client.write(b"kept")
    leader = client.leader()
    others = [n for n in NODES if n != leader]
    if client.coordinator() == leader:
        client.kill(leader)
    else:
        for other in others:
            client.cluster.cut(leader, other)
        client.cluster.run_until(
            lambda: all(image(client.cluster, n, "t").leader in others for n in others)
        )
    client.alive = lambda: others  # type: ignore[method-assign]
    client.end(committed=True)
    client.settle()
    assert client.committed_values() == [b"kept"]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_coordinator_that_is_cut_off_does_not_hold_up_the_first_batch(seed: int) -> None:
    """The leader has asked it about the batch, and gets no answer."""
    client = TransactionalClient(seed)
    client.init()
    coordinator = client.coordinator()
    others = [n for n in NODES if n != coordinator]
    assert client.leader() in others
    for other in others:
        client.cluster.cut(coordinator, other)
    client.alive = lambda: others  # type: ignore[method-assign]
    timeline = client.cluster.timeline
    began_ms = timeline.now_ms
    client.write(b"kept")
    assert timeline.now_ms - began_ms < 20_000, "its session ends after nine seconds"
    client.end(committed=True)
    client.settle()
    assert client.committed_values() == [b"kept"]


@pytest.mark.parametrize("seed", range(3))
def test_a_zombie_is_fenced_by_its_successor(seed: int) -> None:
    client = TransactionalClient(seed)
    client.init()
    client.write(b"of the zombie")
    zombie = client.producer
    client.init()
    client.settle()
    client.write(b"of the successor")
    successor, client.producer = client.producer, zombie
    with pytest.raises(AssertionError, match="error_code"):
        client.write(b"too late")
    with pytest.raises(AssertionError, match="error_code"):
        client.end(committed=True)
    client.producer = successor
    client.end(committed=True)
    client.settle()
    assert client.committed_values() == [b"of the successor"]


def test_all_coordinators_of_the_transaction_log_agree_after_a_failover() -> None:
    client = TransactionalClient(seed=3)
    client.init()
    client.write(b"kept")
    client.end(committed=True)
    first = client.coordinator()
    client.kill(first)
    client.settle()
    client.cluster.start(first)
    cluster = client.cluster
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES))
    index = partition_of(ID, STATE_PARTITIONS)
    cluster.run_until(
        lambda: all(
            set(cluster.node(n).image.topics[TRANSACTIONS_TOPIC].partitions[index].isr)
            == set(NODES)
            for n in NODES
        )
    )
    logs = [
        cluster.node(n).topics.partition_named(TRANSACTIONS_TOPIC, index).online_log()
        for n in NODES
    ]
    assert len({log.log_end_offset for log in logs}) == 1
