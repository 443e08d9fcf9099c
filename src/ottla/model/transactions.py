"""How a transaction ends on a partition: what a coordinator tells the partition's leader."""

from __future__ import annotations

from typing import NamedTuple


class TransactionEnd(NamedTuple):
    """A marker: which producer's transaction ends, who says so, and how."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int = 0
    """2 if the epoch is that of this transaction alone (KIP-890), 0 or 1 otherwise."""
