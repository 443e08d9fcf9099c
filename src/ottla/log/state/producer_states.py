"""What a log knows about its producers: epochs, sequences, transactions (KIP-98, KIP-360).

Each producer id has an entry with its epoch and its last batches, at most five, because a
client has at most five requests in flight. Entries are never changed, only replaced. The
replaced ones are kept until the batches they belong to are written: undoing puts them back.

`check` decides about a batch of a client:
    unknown producer         any sequence is accepted (its records may have been deleted)
    older epoch              INVALID_PRODUCER_EPOCH
    newer epoch              the sequence must be 0, else OUT_OF_ORDER_SEQUENCE_NUMBER
    same epoch, next sequence  accepted
    same epoch, one of the last batches    a duplicate: the same offset is returned again
    same epoch, anything else              OUT_OF_ORDER_SEQUENCE_NUMBER
Sequences wrap from 2**31 - 1 to 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_OFFSET, NO_PRODUCER_EPOCH, NO_TIMESTAMP

RETAINED_BATCHES: Final = 5
SEQUENCE_MASK: Final = 0x7FFFFFFF
NO_COORDINATOR_EPOCH: Final = -1

_new = tuple.__new__  # what a NamedTuple's constructor does, in half the time


class ProducerBatch(NamedTuple):
    """Sequences and offsets of one batch of a producer."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry(NamedTuple):
    """The state of one producer id; batches oldest first."""

    producer_epoch: int
    batches: tuple[ProducerBatch, ...]
    last_timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1


_UNKNOWN = ProducerEntry(NO_PRODUCER_EPOCH, (), NO_TIMESTAMP, NO_COORDINATOR_EPOCH, NO_OFFSET)


class CompletedTxn(NamedTuple):
    """A transaction of a producer from its first offset to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerStates:
    """The producers of one log."""

    __slots__ = ("_completed", "_queued_ends", "entries", "ongoing", "queued")

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.ongoing: dict[int, int] = {}
        """The first offset of each transaction that has no marker yet, by producer id."""
        self._completed: list[CompletedTxn] = []
        self._queued_ends = 0
        """How many of the completed transactions have a marker that is not written yet."""
        self.queued: list[tuple[int, ProducerEntry | None]] = []
        """The entries before the changes of batches that are not written yet."""

    def __len__(self) -> int:
        return len(self.entries)

    def check(
        self, producer_id: int, producer_epoch: int, base_sequence: int, last_sequence: int
    ) -> ProducerBatch | None:
        """Return None if the batch may be appended, or the original of a duplicate.

        Raises ApiError if the epoch or the sequence is wrong.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            return None
        current_epoch, batches, _, _, _ = entry
        if producer_epoch == current_epoch:
            if base_sequence == ((batches[-1][1] + 1) & SEQUENCE_MASK if batches else 0):
                return None
            for batch in batches:
                if batch[0] == base_sequence and batch[1] == last_sequence:
                    return batch
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
            f" the last one in epoch {current_epoch} is {entry.last_sequence}",
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
        entry = self.entries.get(producer_id)
        self.queued.append((producer_id, entry))
        batch = _new(
            ProducerBatch, (base_sequence, last_sequence, base_offset, last_offset, timestamp)
        )
        if entry is None:
            entry = _UNKNOWN
        current_epoch, batches, _, coordinator_epoch, txn = entry
        if current_epoch == producer_epoch:
            batches = (*batches[1 - RETAINED_BATCHES :], batch)
        else:
            batches = (batch,)
        self.entries[producer_id] = _new(
            ProducerEntry, (producer_epoch, batches, timestamp, coordinator_epoch, txn)
        )

    def mark_written(self) -> None:
        """Keep what was appended so far: its batches are written."""
        self.queued.clear()
        self._queued_ends = 0

    def undo_queued(self) -> None:
        """Take back what was appended since the last `mark_written`."""
        for producer_id, entry in reversed(self.queued):
            self.ongoing.pop(producer_id, None)
            if entry is None:
                del self.entries[producer_id]
                continue
            self.entries[producer_id] = entry
            if entry.current_txn_first_offset >= 0:
                self.ongoing[producer_id] = entry.current_txn_first_offset
        if self._queued_ends:
            del self._completed[-self._queued_ends :]
            self._queued_ends = 0
        self.queued.clear()

    def load(self, entries: dict[int, ProducerEntry]) -> None:
        """Load the state of a snapshot."""
        self.clear()
        self.entries.update(entries)
        for producer_id, entry in entries.items():
            if entry.current_txn_first_offset >= 0:
                self.ongoing[producer_id] = entry.current_txn_first_offset

    def clear(self) -> None:
        """Forget everything."""
        self.entries.clear()
        self.ongoing.clear()
        self._completed.clear()
        self.queued.clear()
        self._queued_ends = 0

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
        if is_transactional and producer_id not in self.ongoing:
            self.ongoing[producer_id] = batch.base_offset
            entry = self.entries[producer_id]
            self.entries[producer_id] = entry._replace(current_txn_first_offset=batch.base_offset)

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
        self.queued.append((producer_id, entry))
        if entry is None:
            entry = _UNKNOWN
        batches = entry.batches if entry.producer_epoch == producer_epoch else ()
        self.entries[producer_id] = ProducerEntry(
            producer_epoch, batches, timestamp, coordinator_epoch, NO_OFFSET
        )
        first_offset = self.ongoing.pop(producer_id, None)
        if first_offset is None:
            return None
        completed = CompletedTxn(producer_id, first_offset, offset, is_abort)
        self._completed.append(completed)
        self._queued_ends += 1
        return completed

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset of a transaction that is open or whose marker is uncommitted."""
        if not self.ongoing and not self._completed:
            return None
        self._completed = [t for t in self._completed if t.last_offset >= high_watermark]
        offsets = [*self.ongoing.values(), *(t.first_offset for t in self._completed)]
        return min(offsets, default=None)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers without recent batches or an open transaction; return how many."""
        expired = [
            producer_id
            for producer_id, entry in self.entries.items()
            if now_ms - entry.last_timestamp >= expiration_ms and entry.current_txn_first_offset < 0
        ]
        for producer_id in expired:
            del self.entries[producer_id]
        return len(expired)

    def __iter__(self) -> Iterator[tuple[int, ProducerEntry]]:
        return iter(self.entries.items())
