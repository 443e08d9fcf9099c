"""Transactions that a partition's leader has asked the transaction coordinator about (KIP-890).

The first batch of a transaction on a partition is appended only if the coordinator knows that the
partition is part of the transaction. The leader asks, and keeps what it has asked for here, by
producer id. The append names the guard that it got when it asked. A marker that was written in
between forgets the guard, so an old answer never begins a transaction that nobody would end.

    (none)   -> asked       `begin`
    asked    -> (none)      the first batch or a marker is appended (`forget`), or much time passes

While the coordinator is asked, the lowest sequence is kept: batches after it are refused, or the
client could never write the one before them.
"""

from __future__ import annotations

from itertools import count
from typing import Final

NOT_TRANSACTIONAL: Final = -1
"""The guard of a request without a transactional id: it may append no transactional batch."""
UNVERIFIED: Final = 0
"""The guard of a request that did not ask: it may append to a transaction that has begun."""
NOT_NEEDED: Final = -2
"""The guard where transaction.partition.verification.enable is false."""

_guards = count(1)


class Verification:
    """What was asked about one producer."""

    __slots__ = ("adds_partition", "began_ms", "guard", "lowest_sequence", "producer_epoch")

    def __init__(
        self, producer_epoch: int, base_sequence: int, began_ms: int, adds_partition: bool
    ) -> None:
        self.guard = next(_guards)
        self.producer_epoch = producer_epoch
        self.lowest_sequence = base_sequence
        self.began_ms = began_ms
        self.adds_partition = adds_partition
        """True if the coordinator adds the partition: a client of transaction version 2."""


class Verifications:
    """The verifications of one log, by producer id."""

    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, Verification] = {}

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def begin(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        now_ms: int,
        *,
        adds_partition: bool,
    ) -> int:
        """Note that the coordinator is asked; return the guard that the append must name."""
        found = self._by_producer.get(producer_id)
        if found is None:
            found = self._by_producer[producer_id] = Verification(
                producer_epoch, base_sequence, now_ms, adds_partition
            )
        elif producer_epoch > found.producer_epoch:
            found.producer_epoch, found.lowest_sequence = producer_epoch, base_sequence
        elif producer_epoch == found.producer_epoch and base_sequence < found.lowest_sequence:
            found.lowest_sequence = base_sequence
        return found.guard

    def get(self, producer_id: int) -> Verification | None:
        """Return what was asked about a producer."""
        return self._by_producer.get(producer_id)

    def forget(self, producer_id: int) -> None:
        """Forget a producer: its transaction has begun, or has ended."""
        self._by_producer.pop(producer_id, None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget what was asked long ago and never used."""
        for producer_id, found in list(self._by_producer.items()):
            if now_ms - found.began_ms >= expiration_ms:
                del self._by_producer[producer_id]

    def clear(self) -> None:
        """Forget everything."""
        self._by_producer.clear()
