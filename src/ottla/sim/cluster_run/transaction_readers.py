"""Readers of what transactions write, with both isolation levels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from ottla.log.state.producer_replay import read_marker
from ottla.records.batch import Batch, scan
from ottla.records.record import records_of
from ottla.sim.cluster_run.clients import ClusterConsumer, ClusterRunOfClients
from ottla.sim.cluster_run.transaction_history import TransactionHistory
from ottla.sim.model.batch import uid_of
from ottla.sim.network.exchange import Violation
from ottla.wire.messages.fetch import PartitionData

_BEGIN_AGAIN = 0.02
"""How often a reader begins at the beginning again."""


class ClusterRunOfReaders(ClusterRunOfClients, Protocol):
    """What readers ask of the run."""

    transactions: TransactionHistory


class TransactionReader(ClusterConsumer):
    """Reads one partition.

    With `isolation_level` 1 it leaves aborted transactions out as clients do: from the list in the
    answer. What is left must be exactly what committed transactions have written.
    """

    environment: ClusterRunOfReaders

    def act(self) -> None:
        if not self.is_steady and self.chance.random() < _BEGIN_AGAIN:
            self.position = 0
        super().act()

    def read(self, answer: PartitionData, data: bytes) -> None:
        if answer.last_stable_offset > answer.high_watermark:
            raise Violation(
                f"{self.name}: was told the last stable offset {answer.last_stable_offset}"
                f" and the high watermark {answer.high_watermark}"
            )
        position = self.position
        super().read(answer, data)
        if self.isolation_level:
            self._read_committed(position, answer, data)

    def _read_committed(self, position: int, answer: PartitionData, data: bytes) -> None:
        for batch, is_visible in batches_read(answer, data):
            if batch.next_offset > answer.last_stable_offset:
                raise Violation(
                    f"{self.name} reads {batch}; the last stable offset is"
                    f" {answer.last_stable_offset}"
                )
            if not batch.is_control and batch.base_offset >= position:
                self._check(batch, data[batch.position : batch.end], is_visible=is_visible)

    def _check(self, batch: Batch, content: bytes, *, is_visible: bool) -> None:
        transactions = self.environment.transactions
        records = records_of(content)
        if not records:
            return  # compaction has emptied the batch
        transaction = transactions.transaction_of(uid_of(records[0].value))
        assert transaction is not None
        if transaction.committed is None:
            if is_visible and transactions.is_strict:
                raise Violation(f"{self.name} reads offset {batch.base_offset} of {transaction}")
        elif transaction.committed is not is_visible:
            word = "reads" if is_visible else "does not see"
            raise Violation(f"{self.name} {word} offset {batch.base_offset} of {transaction}")


def batches_read(answer: PartitionData, data: bytes) -> Iterator[tuple[Batch, bool]]:
    """Iterate over the batches of an answer to a read_committed fetch, as clients do.

    With each comes whether it is visible: not of a transaction in the list of aborted ones.
    """
    begun = sorted(
        (each.first_offset, each.producer_id) for each in answer.aborted_transactions or ()
    )
    aborted: set[int] = set()
    for batch in scan(data, 0, len(data)):
        while begun and begun[0][0] <= batch.last_offset:
            aborted.add(begun.pop(0)[1])
        yield batch, batch.producer_id not in aborted
        if batch.is_control:
            marker = read_marker(data[batch.position : batch.end])
            if marker is not None and marker.is_abort:
                aborted.discard(batch.producer_id)


def visible_uids(answer: PartitionData, position: int) -> Iterator[tuple[int, int]]:
    """Iterate over the visible batches from a position on: their numbers and next offsets."""
    data = bytes(answer.records or b"")
    for batch, is_visible in batches_read(answer, data):
        if batch.is_control or not is_visible or batch.base_offset < position:
            continue
        records = records_of(data[batch.position : batch.end])
        if records:
            yield uid_of(records[0].value), batch.next_offset
