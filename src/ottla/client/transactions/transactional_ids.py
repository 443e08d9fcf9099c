"""Transactional ids: list and describe them (KIP-664)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.client.cluster import Client
from ottla.client.deadline import Deadline
from ottla.client.errors import Refused, UnsupportedByBroker, check
from ottla.client.groups.coordinators import TRANSACTION, GroupCoordinator, by_coordinator
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ottla.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

NO_DURATION = -1
_FIRST_DURATION = 1
_FIRST_PATTERN = 2
_UNKNOWN_ID = "there is no such transactional id; `ottla transactions list` shows all of them"


class TransactionListing(NamedTuple):
    """One transactional id of a list."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """A transactional id. `started_ms` is None if there is no transaction."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int | None
    partitions: list[TopicPartition]


def list_transactions(
    client: Client,
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    duration_ms: int = NO_DURATION,
    pattern: str | None = None,
) -> list[TransactionListing]:
    """Return the transactional ids of all brokers, by name, filtered."""
    deadline = client.deadline("listing transactions")
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=duration_ms,
        transactional_id_pattern=pattern,
    )

    def ask(node_id: int) -> list[TransactionListing]:
        connection = client.node(node_id, deadline)
        _require_filters(connection.version_of(ListTransactionsRequest), duration_ms, pattern)
        response = client.call(connection, request, ListTransactionsResponse, deadline)
        if response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION:
            advice = "it is no regular expression that the broker can use"
            raise Refused(response.error_code, f"the pattern {pattern!r}", advice)
        check(response.error_code, f"the transactions of broker {node_id}")
        return [
            TransactionListing(
                found.transactional_id, node_id, found.producer_id, found.transaction_state
            )
            for found in response.transaction_states
        ]

    def ask_all() -> list[TransactionListing]:
        client.metadata([], deadline)
        return sorted(listing for node_id in client.brokers for listing in ask(node_id))

    return client.retry(ask_all, deadline, harmless_twice=True)


def _require_filters(version: int, duration_ms: int, pattern: str | None) -> None:
    if duration_ms != NO_DURATION and version < _FIRST_DURATION:
        raise UnsupportedByBroker("the broker is too old to filter transactions by duration")
    if pattern is not None and version < _FIRST_PATTERN:
        raise UnsupportedByBroker("the broker is too old to filter transactions by name")


def describe_transactions(client: Client, ids: Sequence[str]) -> list[TransactionDescription]:
    """Return these transactional ids, in this order. Raise Refused if one is missing."""
    deadline = client.deadline("describing transactions")

    def ask() -> list[TransactionDescription]:
        found = {
            description.transactional_id: description
            for coordinator, wanted in by_coordinator(client, ids, deadline, TRANSACTION).items()
            for description in _describe(client, coordinator, wanted, deadline)
        }
        for transactional_id in ids:
            if transactional_id not in found:
                code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
                raise Refused(code, f"transactional id {transactional_id}", _UNKNOWN_ID)
        return [found[transactional_id] for transactional_id in ids]

    return client.retry(ask, deadline, harmless_twice=True) if ids else []


def _describe(
    client: Client, coordinator: GroupCoordinator, ids: Sequence[str], deadline: Deadline
) -> list[TransactionDescription]:
    connection = client.node(coordinator.node_id, deadline)
    request = DescribeTransactionsRequest(transactional_ids=list(ids))
    response = client.call(connection, request, DescribeTransactionsResponse, deadline)
    for state in response.transaction_states:
        advice = _UNKNOWN_ID if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND else None
        check(state.error_code, f"transactional id {state.transactional_id}", advice)
    return [_description(state, coordinator.node_id) for state in response.transaction_states]


def _description(state: TransactionState, coordinator: int) -> TransactionDescription:
    started_ms = state.transaction_start_time
    return TransactionDescription(
        state.transactional_id,
        coordinator,
        state.producer_id,
        state.producer_epoch,
        state.transaction_state,
        state.transaction_timeout,
        started_ms if started_ms >= 0 else None,
        [
            TopicPartition(topic.topic, partition)
            for topic in state.topics
            for partition in topic.partitions
        ],
    )
