"""The aborted transactions of a partition: which batches read_committed leaves out.

A producer has one transaction at a time. So a batch belongs to an aborted transaction if its
offset lies between the first record and the marker of one of its producer's.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable

from ottla.log.segment.txn_index import TXN_ENTRY, AbortedTxn
from ottla.records.batch import Batch


class AbortedRanges:
    """Offsets of aborted transactions, by producer."""

    def __init__(self) -> None:
        self._ranges: dict[int, list[tuple[int, int]]] = {}

    def add(self, transactions: Iterable[AbortedTxn]) -> None:
        """Add the entries of a transaction index."""
        for each in transactions:
            known = self._ranges.setdefault(each.producer_id, [])
            entry = (each.first_offset, each.last_offset)
            if entry not in known:
                insort(known, entry)

    def covers(self, batch: Batch) -> bool:
        """Return True if a batch belongs to an aborted transaction."""
        known = self._ranges.get(batch.producer_id)
        if known is None or not batch.is_transactional:
            return False
        at = bisect_right(known, (batch.base_offset, 2**63)) - 1
        return at >= 0 and known[at][1] >= batch.base_offset

    def forget_before(self, offset: int) -> None:
        """Drop the transactions that ended before an offset."""
        for producer_id, known in list(self._ranges.items()):
            kept = [each for each in known if each[1] >= offset]
            if kept:
                self._ranges[producer_id] = kept
            else:
                del self._ranges[producer_id]


def parse_txn_index(content: bytes) -> list[AbortedTxn]:
    """Return the entries of a transaction index; raise ValueError if it is damaged."""
    if len(content) % TXN_ENTRY.size:
        raise ValueError(f"{len(content)} bytes are no whole number of entries")
    found: list[AbortedTxn] = []
    for version, *fields in TXN_ENTRY.iter_unpack(content):
        entry = AbortedTxn._make(fields)
        if version != 0:
            raise ValueError(f"version {version} of an entry is unknown")
        if entry.first_offset > entry.last_offset:
            raise ValueError(f"a transaction from {entry.first_offset} to {entry.last_offset}")
        if found and entry.last_offset <= found[-1].last_offset:
            raise ValueError(f"offset {entry.last_offset} after {found[-1].last_offset}")
        found.append(entry)
    return found
