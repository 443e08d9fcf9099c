"""Joins the transaction coordinator to the node, and to the brokers that its markers go to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.broker.transaction_markers import MarkerResults, write_markers
from ottla.broker.transaction_verification import Question
from ottla.controller.brokers import METADATA_VERSION
from ottla.coordinator.transactions.add_partitions import AddPartitions
from ottla.coordinator.transactions.broker import MarkerCodes
from ottla.coordinator.transactions.outcome import Outcome
from ottla.coordinator.transactions.transaction import EPOCH_PER_TRANSACTION
from ottla.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ApiError
from ottla.model.ids import TRANSACTIONS_TOPIC, TopicPartition
from ottla.ports import Peer
from ottla.wire.messages.write_txn_markers import WriteTxnMarkersRequest

if TYPE_CHECKING:
    from ottla.broker.node import Node

_OLD_VERSION: Final = 1
_NEW_VERSION: Final = 2
"""The version of WriteTxnMarkers that names the transaction version (KIP-1228)."""

_LEVEL_OF_NEW_VERSION: Final = 29
"""4.2-IV1, the highest metadata version of Kafka 4.2, which was the first with the new version."""


def start_transaction_coordinator(node: Node) -> TransactionCoordinator:
    """Return a transaction coordinator that loads its ids and follows the node's metadata."""
    transactions = TransactionCoordinator(node, BrokerRoutes(node))
    node.hosted_logs.on_log_made.append(transactions.host.partition_led)
    node.hosted_logs.on_first_led.append(transactions.host.partition_led)
    node.transaction_verifier.ask_here = partial(answer_question, transactions)
    transactions.host.refresh()
    return transactions


def answer_question(transactions: TransactionCoordinator, question: Question) -> None:
    """Answer what a partition's leader on this broker asks, at once or later.

    It may wait for the end of the transaction before: it holds up nobody else.
    """

    def done(outcome: Outcome) -> None:
        if outcome.partitions is None:
            question.refuse(outcome.error_code)
        else:
            question.done(dict(outcome.partitions))

    asked = AddPartitions(
        question.transactional_id,
        question.producer_id,
        question.producer_epoch,
        question.partitions,
        EPOCH_PER_TRANSACTION,
    )
    try:
        if question.adds_partitions:
            transactions.add_partitions(asked, done, may_wait=True)
        else:
            transactions.verify_partitions(asked, done)
    except ApiError as error:
        question.refuse(error.code)


def follow_metadata(
    transactions: TransactionCoordinator, delta: MetadataDelta, image: MetadataImage
) -> None:
    """Tell the coordinator what has changed. The hosted logs have followed already."""
    topic = image.topics.get(TRANSACTIONS_TOPIC)
    is_changed = topic is not None and topic.topic_id in delta.topics.changed
    if is_changed or any(each.name == TRANSACTIONS_TOPIC for each in delta.topics.deleted.values()):
        transactions.host.refresh()
    if delta.topics.changed or delta.topics.deleted or delta.brokers.changed:
        transactions.markers.metadata_changed()


class BrokerRoutes:
    """Connections to the brokers that lead partitions of transactions."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._peers: dict[int, tuple[tuple[str, int], Peer]] = {}
        """The connection to each broker, with its address."""

    def write_here(
        self, request: WriteTxnMarkersRequest, done: Callable[[MarkerCodes], None]
    ) -> None:
        """Write markers to partitions that this broker leads."""
        write_markers(self._node, request, lambda results: done(_codes_of(results)))

    def peer(self, broker_id: int) -> Peer | None:
        """Return the connection to a broker, None while its address is not known."""
        address = self._node.inter_broker_address(broker_id)
        known = self._peers.get(broker_id)
        if known is not None:
            if known[0] == address:
                return known[1]
            del self._peers[broker_id]
            known[1].close()
        if address is None:
            return None
        client_id = f"broker-{self._node.node_id}-txn-markers"
        peer = self._node.ports.network.connect(*address, client_id)
        self._peers[broker_id] = address, peer
        return peer

    def version(self, broker_id: int) -> int:
        """Return the version of WriteTxnMarkers that a broker understands.

        Kafka's brokers register the highest level of the metadata that they support, which shows
        how old they are.
        """
        broker = self._node.image.brokers.get(broker_id)
        for name, _, highest in () if broker is None else broker.features:
            if name == METADATA_VERSION and highest >= _LEVEL_OF_NEW_VERSION:
                return _NEW_VERSION
        return _OLD_VERSION


def _codes_of(results: MarkerResults) -> MarkerCodes:
    return {
        (producer_id, TopicPartition(topic, index)): code
        for producer_id, topics in results.items()
        for topic, codes in topics.items()
        for index, code in codes.items()
    }
