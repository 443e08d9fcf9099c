"""Finds transactions that hang: open on a partition, and unknown to every coordinator (KIP-664).

A transaction hangs if nobody will ever end it: no transactional id has its producer, or the
producer's present transaction is not open, or does not have the partition. Only transactions
without a batch for a while are looked at: a coordinator may be about to end younger ones.

A transaction may also end while the coordinators are asked. So partitions are looked at once more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ottla.client.cluster import Client
from ottla.client.errors import check
from ottla.client.transactions.open_transactions import OpenTransaction, open_transactions
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from ottla.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

_ONGOING = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})


def hanging(client: Client, candidates: Sequence[OpenTransaction]) -> list[OpenTransaction]:
    """Return the candidates that no coordinator knows, and that are still open."""
    known = _known(client, {each.producer_id for each in candidates})
    unknown = [each for each in candidates if (each.producer_id, each.partition) not in known]
    return _still_open(client, unknown)


def _still_open(client: Client, found: Sequence[OpenTransaction]) -> list[OpenTransaction]:
    """Return those of the transactions that have not ended since they were found."""
    indexes: defaultdict[str, set[int]] = defaultdict(set)
    for each in found:
        indexes[each.partition.topic].add(each.partition.partition)
    still = {
        (each.partition, each.producer_id, each.start_offset)
        for topic in indexes
        for each in open_transactions(client, topic, sorted(indexes[topic]))
    }
    return [
        each for each in found if (each.partition, each.producer_id, each.start_offset) in still
    ]


def _known(client: Client, producer_ids: Iterable[int]) -> set[tuple[int, TopicPartition]]:
    """Return the partitions that are in open transactions of these producers."""
    deadline = client.deadline("asking the transaction coordinators")
    wanted = sorted(producer_ids)
    found: set[tuple[int, TopicPartition]] = set()
    if not wanted:
        return found
    client.retry(lambda: client.metadata([], deadline), deadline, harmless_twice=True)
    for broker_id in client.brokers:

        def ask(broker_id: int = broker_id) -> set[tuple[int, TopicPartition]]:
            connection = client.node(broker_id, deadline)
            listed = client.call(
                connection,
                ListTransactionsRequest(producer_id_filters=wanted),
                ListTransactionsResponse,
                deadline,
            )
            check(listed.error_code, f"the transactions of broker {broker_id}")
            ids = [each.transactional_id for each in listed.transaction_states]
            if not ids:
                return set()
            described = client.call(
                connection,
                DescribeTransactionsRequest(transactional_ids=ids),
                DescribeTransactionsResponse,
                deadline,
            )
            return _partitions(described)

        found |= client.retry(ask, deadline, harmless_twice=True)
    return found


def _partitions(response: DescribeTransactionsResponse) -> set[tuple[int, TopicPartition]]:
    found = set()
    for each in response.transaction_states:
        if each.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            continue  # it has expired since it was listed
        check(each.error_code, f"the transaction of {each.transactional_id}")
        if each.transaction_state in _ONGOING:
            found |= {
                (each.producer_id, TopicPartition(topic.topic, index))
                for topic in each.topics
                for index in topic.partitions
            }
    return found
