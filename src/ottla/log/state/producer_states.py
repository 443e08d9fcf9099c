"""What a log knows about its producers: epochs, sequences, transactions (KIP-98, KIP-360).

Each producer id has an entry with its epoch and its last batches, at most five, because a
client has at most five requests in flight. A producer takes less than half a kilobyte: there may
be hundreds of thousands in a log, so it is packed into one bytes object (`producer_table`). These
are never changed, only replaced. The replaced ones are kept until the batches they belong to are
written: undoing puts them back.

`check` decides about a batch of a client:
    unknown producer         any sequence is accepted (its records may have been deleted)
    older epoch              INVALID_PRODUCER_EPOCH
    newer epoch              the sequence must be 0, else OUT_OF_ORDER_SEQUENCE_NUMBER
    same epoch, next sequence  accepted
    same epoch, one of the last batches    a duplicate: the same offset is returned again
    same epoch, anything else              OUT_OF_ORDER_SEQUENCE_NUMBER
Sequences wrap from 2**31 - 1 to 0. What else is asked of batches in transactions is in
`transaction_checks`.

`ongoing` is sorted by first offset: the first one is where the last stable offset stands still.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from ottla.log.state.producer_table import (
    BATCH_SIZE,
    HEAD_SIZE,
    OLDER_SIZE,
    ProducerBatch,
    ProducerEntry,
    ProducerTable,
    pack_batch,
    pack_head,
    unpack_head,
)
from ottla.log.state.verifications import Verifications
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_OFFSET, NO_PRODUCER_EPOCH, NO_TIMESTAMP

SEQUENCE_MASK: Final = 0x7FFFFFFF
NO_COORDINATOR_EPOCH: Final = -1

_UNKNOWN_OFFSET: Final = -1

_sequences_at = Struct(">ii").unpack_from
_epoch_of = Struct(">h").unpack_from

_UNKNOWN = ProducerEntry(NO_PRODUCER_EPOCH, b"", NO_TIMESTAMP, NO_COORDINATOR_EPOCH, NO_OFFSET)


class CompletedTxn(NamedTuple):
    """A transaction of a producer from its first offset to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerStates:
    """The producers of one log."""

    __slots__ = (
        "_packed",
        "_queued_ends",
        "_unstable",
        "_unstable_at",
        "completed",
        "entries",
        "ongoing",
        "queued",
        "verifications",
    )

    def __init__(self) -> None:
        self.entries = ProducerTable()
        self._packed = self.entries.packed
        self.ongoing: dict[int, int] = {}
        """The first offset of each transaction that has no marker yet, by producer id."""
        self.completed: list[CompletedTxn] = []
        """Transactions with a marker that may not be committed yet."""
        self._queued_ends = 0
        """How many of the completed transactions have a marker that is not written yet."""
        self.queued: list[tuple[int, bytes | None]] = []
        """The packed entries before the changes of batches that are not written yet."""
        self.verifications = Verifications()
        self._unstable: int | None = None
        self._unstable_at = _UNKNOWN_OFFSET
        """The high watermark for which `_unstable` is the first unstable offset."""

    def __len__(self) -> int:
        return len(self.entries)

    def check(
        self, producer_id: int, producer_epoch: int, base_sequence: int, last_sequence: int
    ) -> ProducerBatch | None:
        """Return None if the batch may be appended, or the original of a duplicate.

        Raise ApiError if the epoch or the sequence is wrong.
        """
        packed = self._packed.get(producer_id)
        if packed is None:
            return None
        (current_epoch,) = _epoch_of(packed)
        if producer_epoch == current_epoch:
            expected, size = 0, len(packed)
            if size > HEAD_SIZE:
                expected = _sequences_at(packed, size - BATCH_SIZE)[1] + 1 & SEQUENCE_MASK
            if base_sequence == expected:
                return None
            duplicate = self.entries[producer_id].find(base_sequence, last_sequence)
            if duplicate is not None:
                return duplicate
        elif producer_epoch < current_epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {producer_id} has epoch {producer_epoch}, but epoch {current_epoch}"
                " is known already: another instance of the producer has taken over",
            )
        elif base_sequence == 0:
            return None
        raise ApiError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Producer {producer_id} (epoch {producer_epoch}) sent sequence {base_sequence}, but"
            f" the last one in epoch {current_epoch} is {self.entries[producer_id].last_sequence}",
        )

    def append(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        last_sequence: int,
        base_offset: int,
        last_offset: int,
        timestamp: int,
    ) -> None:
        """Remember a batch that `check` accepted; `undo_queued` may take it back."""
        before = self._packed.get(producer_id)
        self.queued.append((producer_id, before))
        batches = pack_batch(base_sequence, last_sequence, base_offset, last_offset, timestamp)
        coordinator_epoch, txn = NO_COORDINATOR_EPOCH, NO_OFFSET
        if before is not None:
            current_epoch, coordinator_epoch, _, txn = unpack_head(before)
            if current_epoch == producer_epoch:
                batches = before[max(HEAD_SIZE, len(before) - OLDER_SIZE) :] + batches
        self._packed[producer_id] = (
            pack_head(producer_epoch, coordinator_epoch, timestamp, txn) + batches
        )

    def mark_written(self) -> None:
        """Keep what was appended so far: its batches are written."""
        self.queued.clear()
        self._queued_ends = 0

    def undo_queued(self) -> None:
        """Take back what was appended since the last `mark_written`."""
        for producer_id, packed in reversed(self.queued):
            if packed is None:
                del self._packed[producer_id]
            else:
                self._packed[producer_id] = packed
        self._restore_ongoing(dict.fromkeys(producer_id for producer_id, _ in self.queued))
        if self._queued_ends:
            del self.completed[-self._queued_ends :]
            self._queued_ends = 0
        self.queued.clear()
        self._unstable_at = _UNKNOWN_OFFSET

    def _restore_ongoing(self, producer_ids: Iterable[int]) -> None:
        """Note the open transactions of some producers, as their entries say."""
        ongoing, is_sorted = self.ongoing, True
        for producer_id in producer_ids:
            entry = self.entries.get(producer_id)
            first_offset = NO_OFFSET if entry is None else entry.current_txn_first_offset
            if first_offset != ongoing.get(producer_id, NO_OFFSET):
                ongoing.pop(producer_id, None)
                if first_offset >= 0:
                    ongoing[producer_id] = first_offset
                    is_sorted = False
        if not is_sorted:
            self.ongoing = dict(sorted(ongoing.items(), key=lambda item: item[1]))

    def load(self, entries: ProducerTable) -> None:
        """Load the state of a snapshot."""
        self.clear()
        self.entries.replace_all(entries)
        self._restore_ongoing(entries)

    def clear(self) -> None:
        """Forget everything."""
        self.entries.clear()
        self.ongoing.clear()
        self.completed.clear()
        self.queued.clear()
        self._queued_ends = 0
        self._unstable_at = _UNKNOWN_OFFSET
        self.verifications.clear()

    def append_unchecked(
        self,
        producer_id: int,
        producer_epoch: int,
        batch: ProducerBatch,
        is_transactional: bool,
    ) -> None:
        """Remember a batch whatever its sequence: it is in the log, or in the leader's log.

        The first batch of a transaction begins it.
        """
        self.append(producer_id, producer_epoch, *batch)
        if is_transactional:
            self.note_transactional(producer_id, batch.base_offset)

    def note_transactional(self, producer_id: int, base_offset: int) -> None:
        """Note that the batch that was just appended is part of a transaction.

        The first one begins it. From then on the transaction needs no verification.
        """
        if self.verifications:
            self.verifications.forget(producer_id)
        if producer_id not in self.ongoing:
            self.ongoing[producer_id] = base_offset
            entry = self.entries[producer_id]
            self.entries[producer_id] = entry._replace(current_txn_first_offset=base_offset)
            self._unstable_at = _UNKNOWN_OFFSET

    def end_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        offset: int,
        timestamp: int,
        is_abort: bool,
    ) -> CompletedTxn | None:
        """End the producer's transaction; return it if it has any records."""
        entry = self.entries.get(producer_id)
        self.queued.append((producer_id, self._packed.get(producer_id)))
        if self.verifications:
            self.verifications.forget(producer_id)
        if entry is None:
            entry = _UNKNOWN
        packed = entry.packed if entry.producer_epoch == producer_epoch else b""
        self.entries[producer_id] = ProducerEntry(
            producer_epoch, packed, timestamp, coordinator_epoch, NO_OFFSET
        )
        first_offset = self.ongoing.pop(producer_id, None)
        if first_offset is None:
            return None
        completed = CompletedTxn(producer_id, first_offset, offset, is_abort)
        self.completed.append(completed)
        self._queued_ends += 1
        self._unstable_at = _UNKNOWN_OFFSET
        return completed

    def first_ongoing_offset(self) -> int | None:
        """Return where the first transaction that has no marker begins."""
        return next(iter(self.ongoing.values()), None)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset of a transaction that is open or whose marker is uncommitted."""
        if not self.ongoing and not self.completed:
            return None
        if self._unstable_at != high_watermark:
            self.completed = [t for t in self.completed if t.last_offset >= high_watermark]
            first = min((t.first_offset for t in self.completed), default=None)
            ongoing = self.first_ongoing_offset()
            if first is None or (ongoing is not None and ongoing < first):
                first = ongoing
            self._unstable, self._unstable_at = first, high_watermark
        return self._unstable

    def expire(
        self, now_ms: int, expiration_ms: int, producer_ids: Iterable[int] | None = None
    ) -> int:
        """Forget producers without recent batches or an open transaction; return how many.

        With `producer_ids` look at these only.
        """
        entries = self._packed
        expired = []
        for producer_id in entries if producer_ids is None else producer_ids:
            packed = entries.get(producer_id)
            if packed is not None:
                _, _, timestamp, txn = unpack_head(packed)
                if now_ms - timestamp >= expiration_ms and txn < 0:
                    expired.append(producer_id)
        for producer_id in expired:
            del entries[producer_id]
        if self.verifications:
            self.verifications.expire(now_ms, expiration_ms)
        return len(expired)

    def __iter__(self) -> Iterator[tuple[int, ProducerEntry]]:
        return iter(self.entries.items())
