"""Bugs in transactions, planted one by one: the seeds must find each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker import transactional_produce
from ottla.coordinator.groups import txn_offset_commit
from ottla.coordinator.groups.offsets import Offsets
from ottla.coordinator.transactions import (
    add_partitions,
    end_transaction,
    init_producer,
    marker_sender,
    transaction,
)
from ottla.coordinator.transactions.marker_sender import Markers, MarkerSender
from ottla.coordinator.transactions.outcome import Outcome
from ottla.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from ottla.log.cleaner.cleaning_session import CleaningSession
from ottla.log.log import Log
from ottla.log.state import producer_replay, transaction_checks
from ottla.log.state.producer_states import ProducerStates
from ottla.model.errors import ErrorCode
from ottla.records.batch import Batch
from ottla.sim.cluster_run.profile import (
    ClusterProfile,
    cleaned_profile,
    copying_group_profile,
    expiring_profile,
    transactional_profile,
)
from ottla.sim.cluster_run.run import ClusterRun
from ottla.sim.cluster_run.transaction_readers import TransactionReader
from tests.sim.test_planted_bugs import Plant, find

pytestmark = pytest.mark.interpreted

# -- partitions --------------------------------------------------------------------------


def read_up_to_the_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let read_committed consumers have records of open transactions."""
    stable = property(lambda self: self.high_watermark)
    monkeypatch.setattr(Log, "last_stable_offset", stable)


def take_an_abort_for_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not note that a transaction was aborted."""
    end: Callable[..., Any] = ProducerStates.end_transaction

    def forgiving(self: ProducerStates, *values: Any) -> Any:
        return end(self, *values[:-1], False)

    monkeypatch.setattr(ProducerStates, "end_transaction", forgiving)


def forget_aborted_transactions_when_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not bring aborted transactions back to the index after a crash or a truncation."""
    update = producer_replay.update_producers

    def forgetful(*values: Any) -> None:
        update(*values)

    monkeypatch.setattr(producer_replay, "update_producers", forgetful)


def forget_aborted_transactions_on_followers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only leaders note which transactions were aborted."""
    append = Log.append_as_follower
    add = Log._add_replicated

    def careless(self: Log, *values: Any) -> int:
        with monkeypatch.context() as patch:
            patch.setattr(Log, "_add_replicated", without_index)
            return append(self, *values)

    def without_index(self: Log, batch: Any, marker: Any) -> None:
        is_abort = marker is not None and marker.is_abort
        add(self, batch, marker._replace(is_abort=False) if is_abort else marker)

    monkeypatch.setattr(Log, "append_as_follower", careless)


def let_zombies_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not compare the epochs of producers, neither here nor in the coordinator."""
    check, check_producer = ProducerStates.check, add_partitions.check_producer

    def blind(self: ProducerStates, producer_id: int, epoch: int, *sequences: int) -> Any:
        entry = self.entries.get(producer_id)
        if entry is not None and epoch < entry.producer_epoch:
            return None
        return check(self, producer_id, epoch, *sequences)

    def trusting(transaction: Any, request: Any) -> Any:
        epoch = transaction.value.producer_epoch
        return check_producer(transaction, request._replace(epoch=epoch))

    def begin(producers: ProducerStates, *values: int, adds_partition: bool) -> int:
        return producers.verifications.begin(*values, adds_partition=adds_partition)

    monkeypatch.setattr(ProducerStates, "check", blind)
    monkeypatch.setattr(add_partitions, "check_producer", trusting)
    monkeypatch.setattr(transaction_checks, "_check_verified", lambda *values: None)
    monkeypatch.setattr("ottla.log.log.begin_verification", begin)


def skip_verification(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not ask the coordinator about the first batch of a transaction."""
    monkeypatch.setattr(transaction_checks, "_check_verified", lambda *values: None)
    add = transactional_produce.TransactionCheck.add

    def trusting(self: Any, *values: Any) -> None:
        add(self, *values)
        self.asked.clear()

    monkeypatch.setattr(transactional_produce.TransactionCheck, "add", trusting)


# -- the coordinator ---------------------------------------------------------------------


def send_markers_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait until the decision is committed."""
    write = TransactionCoordinator._write

    def hasty(self: TransactionCoordinator, runtime: Any, found: Any, value: Any) -> None:
        write(self, runtime, found, value)
        if value.transaction_status in (2, 3):
            self._send_markers(runtime, found.transactional_id, value, Outcome())

    monkeypatch.setattr(TransactionCoordinator, "_write", hasty)


def forget_decisions_with_a_failover(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not go on with the markers of another coordinator's decisions."""
    monkeypatch.setattr(TransactionCoordinator, "_loaded", lambda self, shard: None)


def complete_after_the_first_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call a transaction complete when one partition has its marker."""

    def hasty(self: MarkerSender, markers: Markers, partition: Any) -> None:
        if markers.left:
            markers.left.clear()
            if markers.is_wanted():
                markers.complete()

    monkeypatch.setattr(MarkerSender, "_have", hasty)


def give_up_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not look for the next leader of a partition that has moved."""
    done = marker_sender._DONE | {ErrorCode.NOT_LEADER_OR_FOLLOWER, None}
    monkeypatch.setattr(marker_sender, "_DONE", done)


def keep_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a producer take over without fencing the one before it."""
    take_over = init_producer._take_over

    def friendly(transaction: Any, *values: Any) -> Any:
        value = take_over(transaction, *values)
        value.producer_epoch = transaction.value.producer_epoch
        return value

    monkeypatch.setattr(init_producer, "_take_over", friendly)


def commit_what_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer a commit with success if the transaction is complete, however it has ended."""
    end = end_transaction.end_transaction

    def polite(transaction: Any, request: Any, **values: Any) -> Any:
        if transaction is not None and transaction.state.name.startswith("COMPLETE"):
            return None
        return end(transaction, request, **values)

    monkeypatch.setattr(
        "ottla.coordinator.transactions.transaction_coordinator.end_transaction", polite
    )


# -- offsets -----------------------------------------------------------------------------


def show_pending_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let offsets count before their transaction is committed."""
    put = Offsets.put_pending

    def hasty(self: Offsets, key: Any, value: Any, *where: int) -> None:
        put(self, key, value, *where)
        self._store(key, value)

    monkeypatch.setattr(Offsets, "put_pending", hasty)


def lose_offsets_of_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drop the offsets of a transaction when its marker comes."""
    end = Offsets.end_transaction

    def careless(self: Offsets, producer_id: int, *, committed: bool, ended: Any) -> Any:
        return end(self, producer_id, committed=False, ended=ended)

    monkeypatch.setattr(Offsets, "end_transaction", careless)


def take_offsets_of_zombies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let members of old generations commit offsets in transactions."""
    monkeypatch.setattr(txn_offset_commit, "_check_group", lambda *values: None)


def tell_unstable_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not let the next owner of a partition wait for the transaction of the last one."""
    monkeypatch.setattr(Offsets, "is_unstable", lambda *values: False)


# -- epochs and expiration ---------------------------------------------------------------


def exhaust_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let producer ids have few epochs. This is no bug: it brings their end into a short run."""
    for module in (transaction, end_transaction):
        monkeypatch.setattr(module, "LAST_EPOCH", SHORT_EPOCHS)


def begin_again_with_epoch_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the producer id when its epochs are exhausted."""
    exhaust_epochs(monkeypatch)
    take_over = init_producer._take_over

    def thrifty(found: Any, *values: Any) -> Any:
        value = take_over(found, *values)
        value.producer_id = found.value.producer_id
        return value

    monkeypatch.setattr(init_producer, "_take_over", thrifty)


def keep_the_exhausted_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a transaction that got the last epoch end without another producer id."""
    exhaust_epochs(monkeypatch)

    def faithful(value: Any) -> tuple[int, int]:
        return value.producer_id, value.producer_epoch

    monkeypatch.setattr(transaction, "after_completion", faithful)


def expire_open_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget transactional ids that have a transaction."""

    def is_expired(self: Any, now_ms: int, expiration_ms: int) -> bool:
        return bool(self.value.transaction_last_update_timestamp_ms + expiration_ms <= now_ms)

    monkeypatch.setattr(transaction.Transaction, "is_expired", is_expired)


def expire_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget transactional ids between two transactions."""
    is_expired = transaction.Transaction.is_expired

    def hasty(self: Any, now_ms: int, expiration_ms: int) -> bool:
        return is_expired(self, now_ms, 0)

    monkeypatch.setattr(transaction.Transaction, "is_expired", hasty)


# -- compaction --------------------------------------------------------------------------


def clean_the_newest_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove records that nothing has replaced."""

    def keep_none(self: CleaningSession, chunk: bytes, batch: Batch) -> None:
        self._keep_header(batch)

    monkeypatch.setattr(CleaningSession, "_keep", keep_none)


def stopping_profile(seed: int) -> ClusterProfile:
    """Return a profile in which brokers hand over what they lead."""
    return transactional_profile(seed)._replace(
        weights={"stop": 1.0, "kill": 1.0, "target_leader": 2.0}, outage_ms=(50,)
    )


SHORT_EPOCHS = 5
TXN, CLEANED, STOPPING = transactional_profile, cleaned_profile, stopping_profile
GROUP, EXPIRING = copying_group_profile, expiring_profile
PLANTED = [
    pytest.param(read_up_to_the_high_watermark, TXN, 4, 6),
    pytest.param(take_an_abort_for_a_commit, TXN, 4, 6),
    pytest.param(forget_aborted_transactions_when_cut, TXN, 5, 25),
    pytest.param(forget_aborted_transactions_on_followers, TXN, 5, 25),
    pytest.param(let_zombies_write, TXN, 5, 25),
    pytest.param(skip_verification, TXN, 5, 25),
    pytest.param(send_markers_at_once, TXN, 4, 6),
    pytest.param(forget_decisions_with_a_failover, STOPPING, 4, 80),
    pytest.param(complete_after_the_first_marker, TXN, 4, 25),
    pytest.param(give_up_markers, TXN, 5, 25),
    pytest.param(keep_the_epoch, TXN, 5, 25),
    pytest.param(commit_what_is_aborted, TXN, 5, 80),
    pytest.param(show_pending_offsets, TXN, 4, 25),
    pytest.param(lose_offsets_of_transactions, TXN, 4, 6),
    pytest.param(take_offsets_of_zombies, GROUP, 8, 6),
    pytest.param(tell_unstable_offsets, GROUP, 8, 25),
    pytest.param(begin_again_with_epoch_0, TXN, 5, 25),
    pytest.param(keep_the_exhausted_id, TXN, 5, 25),
    pytest.param(expire_open_transactions, EXPIRING, 5, 25),
    pytest.param(expire_at_once, EXPIRING, 5, 25),
    pytest.param(clean_the_newest_records, CLEANED, 5, 25),
]
"""Each bug, the kind of runs, their seconds, and within how many seeds it is found."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("plant", "kind", "seconds", "seeds"), PLANTED)
def test_a_planted_bug_is_found(
    plant: Plant,
    kind: Callable[[int], ClusterProfile],
    seconds: int,
    seeds: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    find(plant, kind, seconds, seeds, monkeypatch)


@pytest.mark.timeout(600)
def test_a_cycle_of_reads_is_found_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions that read each other's open records are noticed without any other check."""
    monkeypatch.setattr(TransactionReader, "_check", lambda *values, **more: None)
    report = find(read_up_to_the_high_watermark, crowded_profile, 5, 25, monkeypatch)
    assert "have read from each other in a cycle" in report


def crowded_profile(seed: int) -> ClusterProfile:
    """Return a profile with several transactions at a time."""
    return transactional_profile(seed)._replace(copiers=2, rivals=0, group_copiers=2)


@pytest.mark.timeout(600)
def test_write_cycles_are_allowed_and_counted() -> None:
    """Kafka's transactions do not isolate writes. Cycles of them are seen, and are no failure."""
    count = 0
    for seed in range(2):
        run = ClusterRun(seed, 4, profile=crowded_profile(seed))
        run.run()
        count += run.counts["write cycles"]
    assert count


@pytest.mark.timeout(600)
def test_producer_ids_are_replaced_when_their_epochs_are_exhausted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exhaust_epochs(monkeypatch)
    most = 0
    for seed in range(3):
        run = ClusterRun(seed, 8, profile=transactional_profile(seed))
        run.run()
        most = max(most, *(len(each.producer_ids) for each in run.transactions.ids.values()))
    assert most > 2


@pytest.mark.timeout(600)
def test_transactional_ids_expire_and_come_back() -> None:
    expirations = 0
    for seed in range(2):
        run = ClusterRun(seed, 5, profile=expiring_profile(seed))
        run.run()
        expirations += sum(each.expirations for each in run.transactions.ids.values())
    assert expirations


@pytest.mark.timeout(600)
def test_members_of_a_group_copy_exactly_once() -> None:
    requests: Counter[str] = Counter()
    versions = set()
    for seed in range(3):
        run = ClusterRun(seed, 5, profile=copying_group_profile(seed))
        run.run()
        requests += run.counts
        versions |= {each._version for each in run.clients.group_copiers}
    for name in ("JoinGroup", "SyncGroup", "Heartbeat", "TxnOffsetCommit"):
        assert requests[f"{name}Request"] > 10, name
    assert len(versions) > 1
