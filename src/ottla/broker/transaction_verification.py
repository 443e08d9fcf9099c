"""Asks transaction coordinators whether partitions are part of a transaction (KIP-890).

A partition's leader asks before it appends the first batch of a transaction. For a client of
transaction version 2 the coordinator adds the partitions then; for others it only says whether the
client has added them (`verify_only`). So every transaction that has records on a partition is one
that its coordinator knows, and will end.

The questions of a wake-up go to each coordinator's broker in one AddPartitionsToTxn request, one
request at a time, and one transaction of a transactional id in each. This broker itself is asked
without a connection (`ask_here`).

A broker that is paused or cut off does not answer. Once it is fenced, others coordinate its
transactions: what it was asked is refused, so that clients send their requests again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from ottla.coordinator.runtime.partitioner import partition_of
from ottla.model.errors import ErrorCode
from ottla.model.ids import TRANSACTIONS_TOPIC, TopicPartition
from ottla.ports import Peer, Response
from ottla.wire.api_table import ApiKey
from ottla.wire.codec import decoder, encoder
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node

VERSION = 5
REQUEST_TIMEOUT_MS = 30_000

Codes: TypeAlias = dict[TopicPartition, ErrorCode]
Verified: TypeAlias = Callable[[Codes], None]
"""Called with a code for each partition that was asked about."""


class Question:
    """The partitions of one transaction, and who wants to know."""

    __slots__ = (
        "adds_partitions",
        "done",
        "partitions",
        "producer_epoch",
        "producer_id",
        "transactional_id",
    )

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        done: Verified,
        *,
        adds_partitions: bool,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.partitions = partitions
        self.done = done
        self.adds_partitions = adds_partitions

    def message(self) -> AddPartitionsToTxnTransaction:
        """Return the question on the wire."""
        topics: dict[str, list[int]] = {}
        for topic, index in self.partitions:
            topics.setdefault(topic, []).append(index)
        return AddPartitionsToTxnTransaction(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            verify_only=not self.adds_partitions,
            topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                for topic, indexes in topics.items()
            ],
        )

    def refuse(self, code: ErrorCode) -> None:
        """Answer with the same code for all partitions."""
        self.done(dict.fromkeys(self.partitions, code))


class TransactionVerifier:
    """The questions of one broker."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._routes: dict[int, _Route] = {}
        self.ask_here: Callable[[Question], None] | None = None
        """Asks the coordinator on this broker; None while there is none."""

    def ask(self, question: Question) -> None:
        """Ask the coordinator of a transaction. Its `done` is called once, later or at once."""
        broker_id = self._coordinator_of(question.transactional_id)
        if broker_id == self._node.node_id:
            ask = self.ask_here
        else:
            route = None if broker_id is None else self._route(broker_id)
            ask = None if route is None else route.add
        if ask is None:
            question.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            ask(question)

    def _coordinator_of(self, transactional_id: str) -> int | None:
        """Return the broker that leads the partition of a transactional id."""
        topic = self._node.image.topics.get(TRANSACTIONS_TOPIC)
        if topic is None:
            return None
        leader = topic.partitions[partition_of(transactional_id, len(topic.partitions))].leader
        return None if leader < 0 else leader

    def _route(self, broker_id: int) -> _Route | None:
        address = self._node.inter_broker_address(broker_id)
        route = self._routes.get(broker_id)
        if route is not None and route.address != address:
            self._routes.pop(broker_id).close()
            route = None
        if route is None and address is not None:
            client_id = f"broker-{self._node.node_id}-transactions"
            peer = self._node.ports.network.connect(*address, client_id)
            route = self._routes[broker_id] = _Route(self._node, address, peer)
        return route

    def brokers_changed(self) -> None:
        """Give up the questions to brokers that are fenced now."""
        brokers = self._node.image.brokers
        for broker_id in list(self._routes):
            broker = brokers.get(broker_id)
            if broker is None or broker.fenced:
                self._routes.pop(broker_id).close()

    def close(self) -> None:
        """Close the connections to other brokers."""
        for route in self._routes.values():
            route.close()


class _Route:
    """The way to one broker: what waits to be asked, and what was asked."""

    __slots__ = ("_asked", "_node", "_peer", "_waiting", "address")

    def __init__(self, node: Node, address: tuple[str, int], peer: Peer) -> None:
        self._node = node
        self.address = address
        self._peer = peer
        self._waiting: list[Question] = []
        self._asked: list[Question] = []

    def add(self, question: Question) -> None:
        """Ask with the next request."""
        self._waiting.append(question)
        if not self._asked and len(self._waiting) == 1:
            self._node.before_write.append(self._send)

    def _send(self) -> None:
        """Send the first question of each transactional id."""
        asked: dict[str, Question] = {}
        later = [
            each
            for each in self._waiting
            if asked.setdefault(each.transactional_id, each) is not each
        ]
        self._asked, self._waiting = list(asked.values()), later
        if not self._asked:
            return
        request = AddPartitionsToTxnRequest(
            transactions=[question.message() for question in self._asked]
        )
        body = encoder(AddPartitionsToTxnRequest, VERSION)(request)
        try:
            self._peer.send(
                ApiKey.ADD_PARTITIONS_TO_TXN, VERSION, body, REQUEST_TIMEOUT_MS, self._answered
            )
        except BlockingIOError as problem:
            self._answered(problem)

    def _answered(self, result: Response | OSError) -> None:
        asked, self._asked = self._asked, []
        if self._waiting:
            self._node.before_write.append(self._send)
        if isinstance(result, OSError):
            for question in asked:
                question.refuse(ErrorCode.NETWORK_EXCEPTION)
        else:
            view = result.view[result.start : result.end].toreadonly()
            response, _ = decoder(AddPartitionsToTxnResponse, VERSION)(view, 0, len(view))
            _tell(asked, response)

    def close(self) -> None:
        """Close the connection; what was asked fails."""
        self._peer.close()
        waiting, self._waiting = self._waiting, []
        for question in waiting:
            question.refuse(ErrorCode.NETWORK_EXCEPTION)


def _tell(asked: Iterable[Question], response: AddPartitionsToTxnResponse) -> None:
    """Tell the answers to those who asked."""
    found: dict[str, Codes] = {
        result.transactional_id: {
            TopicPartition(topic.name, partition.partition_index): ErrorCode(
                partition.partition_error_code
            )
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        for result in response.results_by_transaction
    }
    refusal = ErrorCode(response.error_code) or ErrorCode.UNKNOWN_SERVER_ERROR
    if refusal == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        refusal = ErrorCode.INVALID_TXN_STATE  # clients must not see errors between brokers
    for question in asked:
        codes = found.get(question.transactional_id, {})
        question.done({each: codes.get(each, refusal) for each in question.partitions})
