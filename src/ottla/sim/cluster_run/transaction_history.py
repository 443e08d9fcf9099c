"""What transactions have promised: each is decided once, and ends everywhere as it was decided.

Everything is learned from committed records, in the order of each log: decisions from the
transaction log, markers and writes from the partitions of transactions, offsets from the offsets
topic. Clients only say what they want: the writes of a transaction, and its end.

Decision      a commit was asked for; it names every partition that has writes
Marker        follows the decision, says the same, and ends all writes to the partition
Completion    every partition of the decision has its marker
Writes        belong to a transaction that the coordinator knows; none of a producer after a later
              epoch of it, nor after another producer has taken over the transactional id
Input         the transactions of a group copy each input without gaps and only once
Expiration    a transactional id is forgotten only if it has no transaction, and after its time.
              Then its producers are out, and the next one has another producer id
Cycles        see `transaction_cycles`

A leader that is the only member of an ISR commits a decision, the markers and the completion in one
wake-up. So what one wake-up commits is taken in an order in which each thing has its reason, if
there is one (`settle`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ottla.coordinator.groups import record_serde as group_records
from ottla.coordinator.groups.records import OffsetCommitValue
from ottla.coordinator.transactions import records as transaction_records
from ottla.coordinator.transactions.records import TransactionLogKey, TransactionLogValue
from ottla.coordinator.transactions.transaction_state import PREPARED, TransactionState
from ottla.log.state.producer_replay import read_marker
from ottla.model.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.records.batch import Batch
from ottla.records.record import records_of
from ottla.sim.cluster_run.history import PartitionKey
from ottla.sim.cluster_run.topics import OUTPUT
from ottla.sim.cluster_run.transaction_cycles import TransactionCycles
from ottla.sim.model.batch import uid_of
from ottla.sim.network.exchange import Violation

OFFSETS_KEY: PartitionKey = (OFFSETS_TOPIC, 0)
"""Where the offsets of all copiers are: runs have one partition of the offsets topic."""
_STATE = TransactionState
_Event = tuple[Batch, bytes] | tuple[str, TransactionLogValue | int]
"""A batch of a partition, or a record of the transaction log: an id and its value.

A tombstone is the time at which it was written.
"""
InputKey = tuple[str, str, int]
"""A group, and a partition that it copies."""
_Rank = tuple[int, int]
"""Which producer id of a transactional id, counted from 0, and an epoch."""
_LATE_MS = 30_000.0
"""How long a request may take to arrive after its client has given it up."""


class Transaction:
    """A transaction as its client made it, and what became of it."""

    def __init__(
        self,
        number: int,
        transactional_id: str,
        producer: tuple[int, int],
        source: InputKey,
        start: int,
        end: int,
    ) -> None:
        self.number = number
        self.transactional_id = transactional_id
        self.producer_id, self.epoch = producer
        self.source = source
        self.start, self.end = start, end
        """The offsets of the input that it copies."""
        self.writes: dict[PartitionKey, list[int]] = {}
        """The number of each batch, by partition; that of offsets is the transaction's."""
        self.asks_commit = False
        """Set when the client sends the request to commit."""
        self.committed: bool | None = None
        """The decision, None as long as there is none."""
        self.ended: set[PartitionKey] = set()
        """The partitions that have the marker."""

    def __repr__(self) -> str:
        decided = {None: "open", True: "committed", False: "aborted"}[self.committed]
        return (
            f"transaction {self.number} of {self.transactional_id}"
            f" (producer {self.producer_id}, epoch {self.epoch}, {decided})"
        )


class _Id:
    """A transactional id as the committed records of the transaction log describe it."""

    def __init__(self) -> None:
        self.value: TransactionLogValue | None = None
        self.prepared: tuple[Transaction | None, TransactionLogValue] | None = None
        self.begun: dict[tuple[int, int], Transaction] = {}
        """The transaction that each producer began last, by its id and epoch."""
        self.producer_ids: dict[int, int] = {}
        """The producer ids that it had, with their numbers."""
        self.fenced_below: _Rank = (-1, -1)
        """Producers with a smaller number or epoch have been replaced."""
        self.expirations = 0
        """How often the id was forgotten."""
        self.inits_decided = 0
        """How many requests to take over the id were decided."""
        self.inits_under_way = 0
        self.init_lost_ms = -1e9
        """When somebody lost such a request, which may still arrive."""

    def undecided(self, producer_id: int, epoch: int) -> Transaction | None:
        """Return the transaction that a decision with this epoch is about.

        The epoch is that of the producer, or the next one: with transaction version 2, or if the
        producer is fenced.
        """
        for each in (epoch, epoch - 1):
            found = self.begun.get((producer_id, each))
            if found is not None and found.committed is None:
                return found
        return None

    @property
    def newest_producer_id(self) -> int:
        """The producer id that it has now, or will have when its transaction is complete."""
        return max(self.producer_ids, key=self.producer_ids.__getitem__, default=-1)

    def rank(self, producer_id: int, epoch: int) -> _Rank:
        """Return the place of a producer among all that the transactional id had."""
        return self.producer_ids.setdefault(producer_id, len(self.producer_ids)), epoch


class Input:
    """How far a group has copied a partition."""

    def __init__(self) -> None:
        self.position = 0
        """The end of what is copied, by the decisions so far."""
        self.visible_position = 0
        """The same, by the markers in the offsets topic."""


class _Writes:
    """What a producer has written to a partition since its last marker."""

    def __init__(self) -> None:
        self.found: list[tuple[Transaction, int]] = []


class TransactionHistory:
    """The history of all transactions."""

    def __init__(self, note: Callable[[str], None] = lambda text: None) -> None:
        self._note = note
        self.expiration_ms = 0
        """The least time after which an id that nobody uses may be forgotten."""
        self.is_strict = True
        """False if records may be committed unseen, by a broker whose disk fails at that moment."""
        self.ids: dict[str, _Id] = {}
        self._inputs: dict[InputKey, Input] = {}
        self.cycles = TransactionCycles()
        self.transactions: list[Transaction] = []
        self._by_uid: dict[int, Transaction] = {}
        self._waiting: dict[PartitionKey, deque[_Event]] = {}
        """What was committed in the present wake-up, by log."""
        self._inits: list[tuple[str, int, int]] = []
        self._open: dict[tuple[PartitionKey, int], _Writes] = {}
        self._epochs: dict[tuple[PartitionKey, int], int] = {}

    def id(self, transactional_id: str) -> _Id:
        return self.ids.setdefault(transactional_id, _Id())

    def input(self, key: InputKey) -> Input:
        """Return how far a group has copied a partition."""
        return self._inputs.setdefault(key, Input())

    # -- what clients say ----------------------------------------------------------------

    def begin(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        source: InputKey,
        start: int,
        end: int,
    ) -> Transaction:
        """Take note that a client begins a transaction."""
        number = len(self.transactions)
        found = Transaction(number, transactional_id, producer, source, start, end)
        self.transactions.append(found)
        self.id(transactional_id).begun[producer] = found
        return found

    def will_write(self, transaction: Transaction, key: PartitionKey, uid: int) -> None:
        """Take note that a client will write a batch."""
        transaction.writes.setdefault(key, []).append(uid)
        if key != OFFSETS_KEY:
            self._by_uid[uid] = transaction

    def init_decided(self, transactional_id: str, producer: tuple[int, int] | None) -> int:
        """Take note that a coordinator has answered a producer that takes over an id.

        `producer` is the id and epoch that it gets, None if it was refused.
        """
        found = self.id(transactional_id)
        found.inits_decided += 1
        if producer is not None:
            self._inits.append((transactional_id, *producer))
        return found.inits_decided

    def may_be_fenced(self, transactional_id: str, init: int, now_ms: float) -> bool:
        """Return True if somebody else may have taken over since the given decision."""
        found = self.id(transactional_id)
        return bool(
            found.inits_decided > init
            or found.inits_under_way
            or now_ms - found.init_lost_ms < _LATE_MS
        )

    def _initialised(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        found = self.id(transactional_id)
        rank = found.rank(producer_id, epoch)
        if rank == found.fenced_below and self.is_strict:
            raise Violation(
                f"{transactional_id}: a producer got id {producer_id} and epoch {epoch}, which"
                " another one had before"
            )
        found.fenced_below = max(found.fenced_below, rank)
        for (key, _), writes in self._open.items() if self.is_strict else ():
            for transaction, _ in writes.found:
                if transaction.transactional_id == transactional_id:
                    raise Violation(
                        f"{transaction} is open in {key}, and another producer has taken over"
                    )

    def ended(self, transaction: Transaction, *, committed: bool) -> None:
        """Take note that a client was told how its transaction ends."""
        if self.is_strict and transaction.committed is not committed and transaction.writes:
            word = "committed" if committed else "aborted"
            raise Violation(f"{transaction}: its client was told that it is {word}")

    def transaction_of(self, uid: int) -> Transaction | None:
        """Return the transaction of a batch."""
        return self._by_uid.get(uid)

    # -- what is committed ---------------------------------------------------------------

    def added(self, key: PartitionKey, batch: Batch, data: bytes) -> None:
        """Take a batch that is committed in its log."""
        waiting = self._waiting.setdefault(key, deque())
        if key[0] == TRANSACTIONS_TOPIC:
            if not batch.is_control:
                waiting.extend(_decoded(data))
        elif batch.is_transactional and (key == OFFSETS_KEY or key[0].startswith(OUTPUT)):
            waiting.append((batch, data))

    def settle(self) -> None:
        """Take what a wake-up has committed: every log in its order, reasons before the rest."""
        waiting, self._waiting = self._waiting, {}
        while any(waiting.values()):
            heads = [(key, queue[0]) for key, queue in waiting.items() if queue]
            heads.sort(key=lambda head: head[0][0] == TRANSACTIONS_TOPIC)
            key, event = next((each for each in heads if self._is_ready(*each)), heads[0])
            waiting[key].popleft()
            self._take(key, event)
        inits, self._inits = self._inits, []
        for init in inits:
            self._initialised(*init)

    def _take(self, key: PartitionKey, event: _Event) -> None:
        first, second = event
        if isinstance(first, str):
            assert not isinstance(second, bytes)
            self._take_value(first, second)
        else:
            assert isinstance(second, bytes)
            if first.is_control:
                self._take_marker(key, first, second)
            else:
                self._take_writes(key, first, second)

    def _is_ready(self, key: PartitionKey, event: _Event) -> bool:
        """Return True if something that is committed has a reason in what was taken before."""
        first, second = event
        if isinstance(first, str):
            assert not isinstance(second, bytes)
            is_end = not isinstance(second, int) and _is_complete(second)
            return not (is_end and self._lacking(self.id(first)))
        assert isinstance(second, bytes)
        if first.is_control:
            writes = self._open.get((key, first.producer_id))
            return writes is None or all(each.committed is not None for each, _ in writes.found)
        return all(
            self._is_in_transaction(key, transaction)
            for transaction, _ in self._writes_of(key, second)
        )

    def _is_in_transaction(self, key: PartitionKey, transaction: Transaction) -> bool:
        value = self.id(transaction.transactional_id).value
        return value is not None and key in _partitions_of(value)

    def _take_value(self, name: str, value: TransactionLogValue | int) -> None:
        found = self.id(name)
        if isinstance(value, int):
            self._expire(name, found, value)
            return
        found.rank(value.producer_id, value.producer_epoch)
        state = _STATE(value.transaction_status)
        if state in PREPARED:
            self._decide(name, found, value, is_commit=state is _STATE.PREPARE_COMMIT)
        elif _is_complete(value):
            self._complete(found)
        found.value = value

    def _expire(self, name: str, found: _Id, time_ms: int) -> None:
        """Take the tombstone of an id."""
        value = found.value
        if value is None:
            return  # it is deleted already
        is_open = found.prepared is not None or value.transaction_status == _STATE.ONGOING
        if is_open and self.is_strict:
            raise Violation(f"{name} is forgotten while it has a transaction")
        unused_ms = time_ms - value.transaction_last_update_timestamp_ms
        if unused_ms < self.expiration_ms and self.is_strict:
            raise Violation(f"{name} is forgotten after {unused_ms} ms")
        self._note(f"{name} is forgotten")
        found.value = None
        found.expirations += 1

    def _decide(
        self, name: str, found: _Id, value: TransactionLogValue, *, is_commit: bool
    ) -> None:
        current = found.undecided(value.producer_id, value.producer_epoch)
        found.prepared = current, value
        self._note(f"{name}: {'commit' if is_commit else 'abort'} of {current} is decided")
        if current is None:
            if is_commit:
                raise Violation(f"{name}: a commit is decided, and no transaction is open")
            return
        current.committed = is_commit
        named = _partitions_of(value)
        for key in current.writes:
            if key not in named and self._holds(key, current):
                raise Violation(f"{current} has writes in {key}, which is not in its decision")
        if not is_commit:
            return
        if not current.asks_commit:
            raise Violation(f"{current}: nobody has asked to commit it")
        copied = self.input(current.source)
        if current.start != copied.position:
            raise Violation(
                f"{current} copies from {current.start}; {copied.position} was committed before"
            )
        copied.position = current.end

    def _holds(self, key: PartitionKey, transaction: Transaction) -> bool:
        writes = self._open.get((key, transaction.producer_id))
        return writes is not None and any(each is transaction for each, _ in writes.found)

    def _complete(self, found: _Id) -> None:
        lacking = self._lacking(found)
        if lacking and self.is_strict and found.prepared is not None:
            raise Violation(f"{found.prepared[0]} is complete, and {lacking} have no marker of it")
        found.prepared = None

    def _lacking(self, found: _Id) -> list[PartitionKey]:
        """Return the partitions that have writes and no marker of the decided transaction."""
        if found.prepared is None or found.prepared[0] is None:
            return []
        transaction, value = found.prepared
        assert transaction is not None
        return sorted(
            key
            for key in _partitions_of(value)
            if self._holds(key, transaction) and key not in transaction.ended
        )

    # -- partitions of transactions ------------------------------------------------------

    def _take_writes(self, key: PartitionKey, batch: Batch, data: bytes) -> None:
        self._check_epoch(key, batch)
        writes = self._open.setdefault((key, batch.producer_id), _Writes())
        for transaction, uid in self._writes_of(key, data):
            writes.found.append((transaction, uid))
            self._check_write(key, batch, transaction, uid)
            if key != OFFSETS_KEY:
                self.cycles.wrote(transaction.number, transaction.transactional_id, key)

    def _writes_of(self, key: PartitionKey, data: bytes) -> list[tuple[Transaction, int]]:
        """Return the numbers in a batch, with the transactions they belong to."""
        if key != OFFSETS_KEY:
            uid = uid_of(records_of(data)[0].value)
            if uid not in self._by_uid:
                raise Violation(f"{key} has batch {uid}, which no client sent")
            return [(self._by_uid[uid], uid)]
        found = []
        for record in records_of(data):
            decoded = group_records.decode(record.key, record.value)
            if decoded is not None and isinstance(decoded[1], OffsetCommitValue):
                number = int(decoded[1].metadata)
                found.append((self.transactions[number], number))
        return found

    def _check_epoch(self, key: PartitionKey, batch: Batch) -> None:
        latest = self._epochs.get((key, batch.producer_id), -1)
        if batch.producer_epoch < latest:
            raise Violation(f"{key}: a zombie has written {batch}; epoch {latest} was there before")
        self._epochs[key, batch.producer_id] = batch.producer_epoch

    def _check_write(
        self, key: PartitionKey, batch: Batch, transaction: Transaction, uid: int
    ) -> None:
        found = self.id(transaction.transactional_id)
        if (batch.producer_id, batch.producer_epoch) != (
            transaction.producer_id,
            transaction.epoch,
        ):
            raise Violation(f"{key}: {batch} is not of the producer of {transaction}")
        if found.rank(batch.producer_id, batch.producer_epoch) < found.fenced_below:
            raise Violation(
                f"{key}: batch {uid} of {transaction} is written by a zombie: epoch"
                f" {found.fenced_below[1]} has taken over"
            )
        if self.is_strict and not self._is_in_transaction(key, transaction):
            raise Violation(f"{key}: batch {uid} of {transaction} is not in its transaction")

    def _take_marker(self, key: PartitionKey, batch: Batch, data: bytes) -> None:
        marker = read_marker(data)
        assert marker is not None
        self._check_epoch(key, batch)
        writes = self._open.pop((key, batch.producer_id), None)
        self._note(f"{key[0]}-{key[1]}: marker of producer {batch.producer_id}")
        if writes is None:
            return
        is_commit = not marker.is_abort
        for transaction, _ in writes.found:
            if transaction.committed is not is_commit and (
                self.is_strict or transaction.committed is not None
            ):
                word = "commit" if is_commit else "abort"
                raise Violation(f"{key}: the marker of {transaction} says {word}")
            transaction.ended.add(key)
        (transaction, _), *_ = writes.found
        if is_commit:
            self._check_whole(key, transaction, [uid for _, uid in writes.found])
            if key == OFFSETS_KEY:
                self.input(transaction.source).visible_position = transaction.end

    def _check_whole(self, key: PartitionKey, transaction: Transaction, uids: list[int]) -> None:
        """Check that the commit of a transaction ends exactly its writes to a partition."""
        expected = transaction.writes.get(key, [])
        if key == OFFSETS_KEY:
            uids = sorted(set(uids))  # a client may have sent them twice
        if uids != expected:
            raise Violation(f"{key}: {transaction} is torn: it has {uids} of {expected}")

    # -- the end -------------------------------------------------------------------------

    def unfinished(self) -> str:
        """Return which transaction has not ended everywhere, empty if all have."""
        for (key, _), writes in self._open.items():
            (transaction, _), *_ = writes.found
            return f"{transaction} hangs in {key}"
        for transaction in self.transactions:
            missing = set(transaction.writes) - transaction.ended
            if transaction.committed and missing:
                return f"{transaction} is torn: {sorted(missing)} have no marker"
        return ""


def _decoded(data: bytes) -> list[tuple[str, TransactionLogValue | int]]:
    """Return the records of the transaction log. Those of tombstones are their times."""
    found = []
    for record in records_of(data):
        decoded = transaction_records.decode(record.key, record.value)
        if decoded is not None:
            key, value = decoded
            assert isinstance(key, TransactionLogKey)
            assert value is None or isinstance(value, TransactionLogValue)
            found.append((key.transactional_id, record.timestamp if value is None else value))
    return found


def _is_complete(value: TransactionLogValue) -> bool:
    return value.transaction_status in (_STATE.COMPLETE_COMMIT, _STATE.COMPLETE_ABORT)


def _partitions_of(value: TransactionLogValue) -> set[PartitionKey]:
    return {
        (topic.topic, index)
        for topic in value.transaction_partitions or ()
        for index in topic.partition_ids
    }
