"""Finds the batches that belong to aborted transactions, by the rule of Kafka's consumers.

The response to a read_committed fetch lists the aborted transactions in its range, by producer
id and first offset. From that first offset until the ABORT marker, transactional batches of that
producer are dropped (KIP-98). Every response has its own list, so no state is kept between
fetches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from ottla.records.batch import CONTROL_MASK, TRANSACTIONAL_MASK


class AbortedTransaction(NamedTuple):
    """An aborted transaction: its first offset in the partition, and its producer."""

    first_offset: int
    producer_id: int


class AbortedFilter:
    """Decides which batches of one fetched partition to drop. Call it in offset order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._upcoming = deque(sorted(aborted))
        self._producers: set[int] = set()

    @property
    def is_idle(self) -> bool:
        """True if none of the following batches can belong to an aborted transaction."""
        return not self._upcoming and not self._producers

    def drops(
        self, last_offset: int, attributes: int, producer_id: int, is_abort_marker: bool
    ) -> bool:
        """Return true if the next batch belongs to an aborted transaction.

        `is_abort_marker` says that the batch is an ABORT marker.
        """
        if producer_id < 0:
            return False
        while self._upcoming and self._upcoming[0].first_offset <= last_offset:
            self._producers.add(self._upcoming.popleft().producer_id)
        if is_abort_marker:
            self._producers.discard(producer_id)
            return False
        is_data = attributes & TRANSACTIONAL_MASK and not attributes & CONTROL_MASK
        return bool(is_data) and producer_id in self._producers
