"""The state of one partition of __transaction_state: the transactional ids that belong to it."""

from __future__ import annotations

from collections.abc import Callable

from ottla.coordinator.runtime.broker import Broker
from ottla.coordinator.runtime.record import RecordKey, RecordValue
from ottla.coordinator.runtime.shard import Command, Shard
from ottla.coordinator.transactions import records
from ottla.coordinator.transactions.outcome import refused
from ottla.coordinator.transactions.records import TransactionLogKey, TransactionLogValue
from ottla.coordinator.transactions.transaction import Transaction
from ottla.coordinator.transactions.transaction_state import PREPARED, TransactionState
from ottla.model.errors import ErrorCode


class TransactionShard(Shard):
    """The transactional ids of one partition.

    `ongoing` and `prepared` have those in such a state, so that nobody has to look at all.
    `on_loaded` is called with the shard when it begins to serve.
    """

    LATEST_ONLY = (records.KEY_PREFIX,)
    encode = staticmethod(records.encode)
    decode = staticmethod(records.decode)
    refuse = staticmethod(refused)

    def __init__(
        self,
        broker: Broker,
        run: Callable[[Command], None],
        max_batch_bytes: int,
        on_loaded: Callable[[TransactionShard], None],
    ) -> None:
        super().__init__(broker, run, max_batch_bytes)
        self.transactions: dict[str, Transaction] = {}
        self.ongoing: dict[str, Transaction] = {}
        self.prepared: dict[str, Transaction] = {}
        self.waiting: dict[str, list[Callable[[ErrorCode], None]]] = {}
        """Requests that wait until the transaction of an id is complete."""
        self._on_loaded = on_loaded

    def loaded(self) -> None:
        """Go on with the transactions that are decided."""
        self._on_loaded(self)

    def close(self, code: ErrorCode) -> None:
        """Refuse the requests that wait for the end of a transaction."""
        waiting, self.waiting = self.waiting, {}
        for requests in waiting.values():
            for end_wait in requests:
                end_wait(code)

    def replay(self, key: RecordKey, value: RecordValue | None) -> None:
        """Apply one record."""
        assert isinstance(key, TransactionLogKey)
        transactional_id = key.transactional_id
        if value is None:
            self.transactions.pop(transactional_id, None)
            self.ongoing.pop(transactional_id, None)
            self.prepared.pop(transactional_id, None)
            return
        assert isinstance(value, TransactionLogValue)
        found = self.transactions.get(transactional_id)
        if found is None:
            found = self.transactions[transactional_id] = Transaction(transactional_id, value)
        else:
            found.install(value)
        self._put(self.ongoing, found, found.state is TransactionState.ONGOING)
        self._put(self.prepared, found, found.state in PREPARED)

    @staticmethod
    def _put(index: dict[str, Transaction], found: Transaction, is_in: bool) -> None:
        if is_in:
            index[found.transactional_id] = found
        else:
            index.pop(found.transactional_id, None)
