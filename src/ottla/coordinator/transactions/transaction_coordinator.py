"""The transaction coordinator of a broker: the transactional ids of the partitions it leads.

Every request becomes a decision about one transactional id: a function that takes the transaction
and returns the value of its next record (`init_producer`, `add_partitions`, `end_transaction`).
The client gets the outcome when the record is committed. Once a decision to commit or abort is
committed, the coordinator sends the markers. When all partitions have theirs, the transaction is
complete. A coordinator that loads a decided transaction goes on with the markers.

While markers are being written, the producer cannot begin its next transaction. A request for it
waits a moment for the end (`COMPLETION_WAIT_MS`) before it gets CONCURRENT_TRANSACTIONS, because
clients then pause for longer than the markers take.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from ottla.coordinator.runtime.broker import Broker
from ottla.coordinator.runtime.host import CoordinatorHost
from ottla.coordinator.runtime.partitioner import partition_of
from ottla.coordinator.runtime.record import is_too_long
from ottla.coordinator.runtime.shard import Command
from ottla.coordinator.runtime.shard_runtime import ShardRuntime
from ottla.coordinator.transactions.add_partitions import (
    AddPartitions,
    add_partitions,
    verify_partitions,
)
from ottla.coordinator.transactions.broker import MarkerRoutes, TransactionBroker
from ottla.coordinator.transactions.end_transaction import EndTransaction, end_transaction, fence
from ottla.coordinator.transactions.init_producer import InitProducer, init_producer
from ottla.coordinator.transactions.marker_sender import Markers, MarkerSender
from ottla.coordinator.transactions.outcome import Outcome, WhenCommitted
from ottla.coordinator.transactions.records import TransactionLogValue
from ottla.coordinator.transactions.transaction import (
    NO_TIMEOUT,
    NeedsProducerId,
    Transaction,
    after_completion,
    completed,
)
from ottla.coordinator.transactions.transaction_expiration import expire_transactional_ids
from ottla.coordinator.transactions.transaction_shard import TransactionShard
from ottla.coordinator.transactions.transaction_state import PREPARED, TransactionState
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TRANSACTIONS_TOPIC, TopicPartition
from ottla.model.steps import Steps

TRANSACTION_VERSION: Final = "transaction.version"
COMPLETION_WAIT_MS: Final = 100
_SAFE_CHARACTERS: Final = 8000  # always fit into a string of a record, whatever they are

Runtime: TypeAlias = ShardRuntime[TransactionShard]
Done: TypeAlias = Callable[[Outcome], None]
Decide: TypeAlias = Callable[[Transaction | None, int | None], TransactionLogValue | None]
"""Returns the value of the next record, or None if there is nothing to write.

It takes the transaction and a new producer id, if it has asked for one with NeedsProducerId.
"""
Tell: TypeAlias = Callable[[TransactionLogValue], Outcome]
"""Returns the outcome for the client from the value of the transaction after the decision."""


class TransactionCoordinator:
    """Finds the shards of transactional ids, and makes decisions about them."""

    def __init__(self, broker: TransactionBroker, routes: MarkerRoutes) -> None:
        self._broker = broker
        self.markers = MarkerSender(broker, routes)
        self.host = CoordinatorHost(TRANSACTIONS_TOPIC, broker, self._new_shard)
        self._after(self._timeout_interval_ms, self._abort_overdue)
        self._after(self._expiration_interval_ms, self._expire)

    def _new_shard(
        self, broker: Broker, run: Callable[[Command], None], max_batch_bytes: int
    ) -> TransactionShard:
        return TransactionShard(broker, run, max_batch_bytes, self._loaded)

    def runtime_of(self, transactional_id: str) -> Runtime:
        """Return the runtime of an id's shard. Raise ApiError if it does not serve here now."""
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        if len(transactional_id) > _SAFE_CHARACTERS and is_too_long(transactional_id):
            raise ApiError(ErrorCode.INVALID_REQUEST)
        num_partitions = self.host.num_partitions
        if not num_partitions:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return self.host.runtime_of(partition_of(transactional_id, num_partitions))

    @property
    def level(self) -> int:
        """The cluster's level of transaction.version."""
        return self._broker.image.features.get(TRANSACTION_VERSION, 0)

    def check_two_phase(self) -> None:
        """Raise ApiError if producers may not take part in two-phase commits (KIP-939)."""
        if not self._broker.config.transactions.transaction_two_phase_commit_enable:
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    def timeout_ms(self, asked_ms: int, *, two_phase: bool) -> int:
        """Return how long transactions may take. Raise ApiError if the producer asks for too much.

        Those of a two-phase commit have no timeout (KIP-939).
        """
        if two_phase:
            self.check_two_phase()
            return NO_TIMEOUT
        if not 0 < asked_ms <= self._broker.config.transactions.transaction_max_timeout_ms:
            raise ApiError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        return asked_ms

    # -- requests: raise ApiError if this is not the coordinator, else call `done` once --------

    def init_producer(self, request: InitProducer, done: Done) -> None:
        """Give a producer its id and epoch. It has to ask again while a transaction ends."""

        def decide(found: Transaction | None, new_id: int | None) -> TransactionLogValue:
            return init_producer(
                found,
                request,
                now_ms=self._broker.wall_ms,
                level=self.level,
                new_producer_id=new_id,
            )

        def tell(value: TransactionLogValue) -> Outcome:
            if value.transaction_status != TransactionState.EMPTY:
                return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
            return Outcome(ErrorCode.NONE, value.producer_id, value.producer_epoch)

        self._decide(request.transactional_id, decide, tell, done, may_wait=True)

    def add_partitions(self, request: AddPartitions, done: Done, *, may_wait: bool) -> None:
        """Add partitions to the producer's transaction."""

        def decide(found: Transaction | None, new_id: int | None) -> TransactionLogValue | None:
            return add_partitions(found, request, now_ms=self._broker.wall_ms, level=self.level)

        self._decide(
            request.transactional_id, decide, lambda value: Outcome(), done, may_wait=may_wait
        )

    def verify_partitions(self, request: AddPartitions, done: Done) -> None:
        """Tell which partitions are in the producer's transaction."""
        runtime = self.runtime_of(request.transactional_id)
        found = runtime.shard.transactions.get(request.transactional_id)
        try:
            outcome = Outcome(partitions=verify_partitions(found, request))
        except ApiError as error:
            outcome = Outcome(error.code)
        runtime.answer(WhenCommitted(done), outcome)

    def end_transaction(self, request: EndTransaction, done: Done) -> None:
        """Commit or abort. `done` gets the outcome when the decision is committed."""

        def decide(found: Transaction | None, new_id: int | None) -> TransactionLogValue | None:
            return end_transaction(
                found,
                request,
                now_ms=self._broker.wall_ms,
                level=self.level,
                new_producer_id=new_id,
            )

        def tell(value: TransactionLogValue) -> Outcome:
            return Outcome(ErrorCode.NONE, *after_completion(value))

        self._decide(request.transactional_id, decide, tell, done, may_wait=False)

    # -- decisions -----------------------------------------------------------------------

    def _decide(
        self,
        transactional_id: str,
        decide: Decide,
        tell: Tell,
        done: Done,
        *,
        may_wait: bool,
        new_id: int | None = None,
    ) -> None:
        runtime = self.runtime_of(transactional_id)
        shard = runtime.shard
        found = shard.transactions.get(transactional_id)
        again = partial(self._decide_again, transactional_id, decide, tell, done)
        try:
            value = decide(found, new_id)
        except NeedsProducerId:
            self._broker.producer_ids.next(partial(self._with_new_id, again, done))
            return
        except ApiError as error:
            if error.code is ErrorCode.CONCURRENT_TRANSACTIONS and may_wait:
                self._wait(shard, transactional_id, again, done)
            else:
                runtime.answer(WhenCommitted(done), Outcome(error.code))
            return
        if value is None:
            assert found is not None
            runtime.answer(WhenCommitted(done), tell(found.value))
            return
        if found is None:
            found = Transaction(transactional_id, value)  # the replay makes the one that stays
        shard.answer(WhenCommitted(done), tell(value))
        self._write(runtime, found, value)

    def _decide_again(
        self,
        transactional_id: str,
        decide: Decide,
        tell: Tell,
        done: Done,
        *,
        may_wait: bool = False,
        new_id: int | None = None,
    ) -> None:
        """Decide after something has been waited for."""
        try:
            self._decide(transactional_id, decide, tell, done, may_wait=may_wait, new_id=new_id)
        except ApiError as error:
            done(Outcome(error.code))

    def _with_new_id(self, again: Callable[..., None], done: Done, new_id: int | ApiError) -> None:
        if isinstance(new_id, ApiError):
            done(Outcome(new_id.code))
        else:
            again(new_id=new_id)

    def _write(self, runtime: Runtime, found: Transaction, value: TransactionLogValue) -> None:
        """Write the record of a decision. Markers follow when a transaction is decided.

        The producer is answered before that: it needs no marker to go on.
        """
        if value.transaction_status in PREPARED:
            send = partial(self._send_markers, runtime, found.transactional_id, value)

            def put_off(told: Outcome) -> None:
                self._broker.put_off.append(partial(send, told))

            runtime.shard.answer(WhenCommitted(put_off), Outcome())
        runtime.finish([(found.key, value)])

    # -- markers -------------------------------------------------------------------------

    def _loaded(self, shard: TransactionShard) -> None:
        """Go on with the transactions that are decided and not complete."""
        if not shard.prepared:
            return
        (runtime,) = (each for each in self.host.runtimes.values() if each.shard is shard)
        self._broker.sliced_work.run(
            self._resume(runtime, list(shard.prepared.values())), lambda: runtime.is_active
        )

    def _resume(self, runtime: Runtime, found: list[Transaction]) -> Steps[None]:
        for transaction in found:
            if transaction.state in PREPARED:
                self._send_markers(
                    runtime, transaction.transactional_id, transaction.value, Outcome()
                )
            yield

    def _send_markers(
        self, runtime: Runtime, transactional_id: str, value: TransactionLogValue, told: Outcome
    ) -> None:
        """Send the markers of a decision that is committed."""
        if told.error_code is not ErrorCode.NONE:
            return  # it was not: whoever loads the log next sees what holds
        found = runtime.shard.transactions.get(transactional_id)
        if found is None or found.value is not value:
            return

        def is_wanted() -> bool:
            return runtime.is_active and found.value is value

        self.markers.send(
            Markers(
                producer_id=value.producer_id,
                producer_epoch=value.producer_epoch,
                committed=found.state is TransactionState.PREPARE_COMMIT,
                transaction_version=value.client_transaction_version,
                coordinator_epoch=lambda: runtime.leader_epoch,
                partitions=[
                    TopicPartition(topic, index)
                    for topic, indexes in found.partitions.items()
                    for index in indexes
                ],
                is_wanted=is_wanted,
                complete=lambda: self._complete(runtime, found),
            )
        )

    def _complete(self, runtime: Runtime, found: Transaction) -> None:
        """Write that every partition has its marker, and let those go on who waited for it."""
        value = completed(found, now_ms=self._broker.wall_ms, level=self.level)
        runtime.finish([(found.key, value)])
        for end_wait in runtime.shard.waiting.pop(found.transactional_id, ()):
            end_wait(ErrorCode.NONE)

    # -- waiting for the end of a transaction --------------------------------------------

    def _wait(
        self,
        shard: TransactionShard,
        transactional_id: str,
        again: Callable[..., None],
        done: Done,
    ) -> None:
        """Decide again when the transaction of an id is complete, or refuse after a while."""
        requests = shard.waiting.setdefault(transactional_id, [])

        def too_late() -> None:
            requests.remove(end_wait)
            if not requests and shard.waiting.get(transactional_id) is requests:
                del shard.waiting[transactional_id]
            done(Outcome(ErrorCode.CONCURRENT_TRANSACTIONS))

        def end_wait(code: ErrorCode) -> None:
            timer.cancel()
            if code is ErrorCode.NONE:
                again()
            else:
                done(Outcome(code))

        broker = self._broker
        timer = broker.timers.at(broker.monotonic_ms + COMPLETION_WAIT_MS, too_late)
        requests.append(end_wait)

    # -- timeouts and expiration ---------------------------------------------------------

    @property
    def _timeout_interval_ms(self) -> int:
        config = self._broker.config.transactions
        return config.transaction_abort_timed_out_transaction_cleanup_interval_ms

    @property
    def _expiration_interval_ms(self) -> int:
        config = self._broker.config.transactions
        return config.transaction_remove_expired_transaction_cleanup_interval_ms

    def _after(self, delay_ms: float, action: Callable[[], None]) -> None:
        self.host.after(delay_ms, action)

    def _abort_overdue(self) -> None:
        """Abort the transactions that took too long, and fence their producers."""
        self._broker.sliced_work.run(self._abort_overdue_steps())
        self._after(self._timeout_interval_ms, self._abort_overdue)

    def _abort_overdue_steps(self) -> Steps[None]:
        for runtime in list(self.host.runtimes.values()):
            yield
            for found in list(runtime.shard.ongoing.values()) if runtime.is_active else ():
                if runtime.is_active and found.is_overdue(self._broker.wall_ms):
                    self._abort(found.transactional_id)
                yield

    def _abort(self, transactional_id: str) -> None:
        """Abort an overdue transaction, unless it has ended meanwhile."""

        def decide(found: Transaction | None, new_id: int | None) -> TransactionLogValue | None:
            now_ms = self._broker.wall_ms
            if found is None or not found.is_overdue(now_ms):
                raise ApiError(ErrorCode.INVALID_TXN_STATE)
            return fence(found, now_ms=now_ms, level=self.level, new_producer_id=new_id)

        self._decide_again(transactional_id, decide, lambda value: Outcome(), _ignore)

    def _expire(self) -> None:
        """Forget the transactional ids that nobody has used for long."""
        self._broker.sliced_work.run(self._expire_steps())
        self._after(self._expiration_interval_ms, self._expire)

    def _expire_steps(self) -> Steps[None]:
        for runtime in list(self.host.runtimes.values()):
            if runtime.is_active:
                yield from expire_transactional_ids(runtime)
            yield


def _ignore(outcome: Outcome) -> None:
    """Do nothing: no client waits. What failed is tried again with the next check."""
