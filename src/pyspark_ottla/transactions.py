"""Which batches of a fetch belong to aborted transactions: the rule of Kafka's own consumers.

A read_committed fetch names the aborted transactions that overlap it, by producer id and first
offset. Going through the batches in order, a producer is under abortion from the first offset
of such a transaction until its ABORT marker; its transactional batches in between are not for
readers (KIP-98). Every fetch comes with its own list, so nothing is kept from one to the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from ottla.records.batch import CONTROL_MASK, TRANSACTIONAL_MASK


class Aborted(NamedTuple):
    """A transaction that was aborted: its first offset in the partition, and who ran it."""

    first_offset: int
    producer_id: int


class AbortedFilter:
    """Goes through the batches of one fetched partition, in order."""

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._ahead = deque(sorted(aborted))
        self._producers: set[int] = set()

    @property
    def is_idle(self) -> bool:
        """Whether no batch that follows can belong to an aborted transaction."""
        return not self._ahead and not self._producers

    def drops(
        self, last_offset: int, attributes: int, producer_id: int, ends_in_abort: bool
    ) -> bool:
        """Whether the next batch is part of an aborted transaction.

        `ends_in_abort` says that the batch is the marker that ends one.
        """
        if producer_id < 0:
            return False
        while self._ahead and self._ahead[0].first_offset <= last_offset:
            self._producers.add(self._ahead.popleft().producer_id)
        if ends_in_abort:
            self._producers.discard(producer_id)
            return False
        is_data = attributes & TRANSACTIONAL_MASK and not attributes & CONTROL_MASK
        return bool(is_data) and producer_id in self._producers
