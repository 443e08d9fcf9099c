"""Which batches of transactions a clean may remove.

Batches go by in the order of the log. A batch of an aborted transaction is removed. A marker is
removed only when a clean sees no batch of its transaction any more, and then only after
delete.retention.ms, so that a reader who is in the middle of a transaction still meets its end.
The transactions whose abort markers stay are the new transaction index.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop

from ottla.log.segment.txn_index import AbortedTxn
from ottla.log.state.producer_replay import Marker
from ottla.records.batch import Batch


class CleanTransactions:
    """The transactions around the current position of a pass over a log."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._to_come = [(each.first_offset, each) for each in aborted]
        heapify(self._to_come)
        self._aborted: dict[int, tuple[AbortedTxn, bool]] = {}
        """By producer: the aborted transaction it is in, and whether a batch of it was seen."""
        self._committed: set[int] = set()
        """Producers with a batch of a transaction that is not aborted."""
        self.kept: list[AbortedTxn] = []
        """Aborted transactions whose markers stay. Whoever writes them clears the list."""

    def is_aborted(self, batch: Batch) -> bool:
        """Return True if a batch with data belongs to an aborted transaction."""
        self._advance(batch)
        if not batch.is_transactional:
            return False
        current = self._aborted.get(batch.producer_id)
        if current is None:
            self._committed.add(batch.producer_id)
            return False
        self._aborted[batch.producer_id] = current[0], True
        return True

    def is_marker_unused(
        self, batch: Batch, marker: Marker | None, *, must_stay: bool = False
    ) -> bool:
        """Return True if no batch of the transaction that a marker ends was seen.

        `marker` is None for other control batches, which stay, and for one without records. One
        that `must_stay` is used: others may have a batch of its transaction.
        """
        self._advance(batch)
        if marker is None:
            return not batch.record_count
        if not marker.is_abort:
            is_used = must_stay or batch.producer_id in self._committed
            self._committed.discard(batch.producer_id)
            return not is_used
        transaction, is_used = self._aborted.pop(batch.producer_id, (None, False))
        is_used = is_used or must_stay
        if transaction is not None and is_used:
            self.kept.append(transaction)
        return not is_used

    def _advance(self, batch: Batch) -> None:
        """Begin the aborted transactions up to a batch.

        One whose marker is behind does not begin: the pass began after it, or retention deleted
        its segments since the transactions were read. Later batches of its producer count.
        """
        while self._to_come and self._to_come[0][0] <= batch.last_offset:
            transaction = heappop(self._to_come)[1]
            if transaction.last_offset >= batch.base_offset:
                self._aborted.setdefault(transaction.producer_id, (transaction, False))
