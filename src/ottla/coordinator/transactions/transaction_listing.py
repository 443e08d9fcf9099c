"""DescribeTransactions and ListTransactions (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from ottla.coordinator.transactions.transaction import Transaction
from ottla.coordinator.transactions.transaction_shard import TransactionShard
from ottla.coordinator.transactions.transaction_state import NAMES, TransactionState
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps
from ottla.wire.messages.describe_transactions import TopicData
from ottla.wire.messages.describe_transactions import TransactionState as DescribedTransaction
from ottla.wire.messages.list_transactions import TransactionState as ListedTransaction

NO_DURATION: Final = -1
_COST_A_STEP: Final = 200_000
_COST_OF_ID: Final = 1000
_BY_NAME: Final = {name: state for state, name in NAMES.items()}


class Filters(NamedTuple):
    """Which transactional ids are listed. Empty collections and None leave nothing out."""

    states: Collection[TransactionState]
    producer_ids: Collection[int]
    duration_ms: int
    matches: Callable[[str], bool] | None
    cost: Callable[[str], int] | None
    """Returns what `matches` costs at most, in units of about 2 ns."""

    def take(self, found: Transaction, now_ms: int) -> bool:
        """Return True if an id is listed."""
        value = found.value
        if self.states and found.state not in self.states:
            return False
        if self.producer_ids and value.producer_id not in self.producer_ids:
            return False
        if self.duration_ms >= 0:
            started_ms = value.transaction_start_timestamp_ms
            if started_ms < 0 or now_ms - started_ms <= self.duration_ms:
                return False
        return self.matches is None or self.matches(found.transactional_id)


def states_named(names: Collection[str]) -> tuple[set[TransactionState], list[str]]:
    """Return the states with these names, and the names that no state has."""
    known = {_BY_NAME[name] for name in names if name in _BY_NAME}
    return known, [name for name in names if name not in _BY_NAME]


def list_transactions(shard: TransactionShard, filters: Filters) -> Steps[list[ListedTransaction]]:
    """Return the ids of a shard that the filters leave."""
    listed = []
    spent = 0
    for found in list(shard.transactions.values()):
        spent += _COST_OF_ID
        if filters.cost is not None:
            spent += filters.cost(found.transactional_id)
        if spent > _COST_A_STEP:
            yield
            spent = 0
        if filters.take(found, shard.broker.wall_ms):
            listed.append(
                ListedTransaction(
                    transactional_id=found.transactional_id,
                    producer_id=found.value.producer_id,
                    transaction_state=NAMES[found.state],
                )
            )
    yield
    return listed


def describe_transaction(shard: TransactionShard, transactional_id: str) -> DescribedTransaction:
    """Return the state of an id. Raise TRANSACTIONAL_ID_NOT_FOUND."""
    found = shard.transactions.get(transactional_id)
    if found is None:
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    value = found.value
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=NAMES[found.state],
        transaction_timeout=value.transaction_timeout_ms,
        transaction_start_time=value.transaction_start_timestamp_ms,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        topics=[
            TopicData(topic=topic, partitions=sorted(indexes))
            for topic, indexes in found.partitions.items()
        ],
    )
