"""The states of a transactional id, and which may follow which (KIP-98, KIP-360, KIP-890).

    EMPTY            a producer has initialised; it has no transaction
    ONGOING          partitions were added
    PREPARE_COMMIT   the decision is to commit; markers are being written
    PREPARE_ABORT    the decision is to abort; markers are being written
    COMPLETE_COMMIT  all markers are written
    COMPLETE_ABORT   all markers are written
    DEAD             the id has expired; its tombstone is being written
    PREPARE_EPOCH_FENCE
                     a transaction is about to be aborted because its producer is fenced. It is
                     never written: the fence and the decision to abort are one record here.

A decision (PREPARE_*) is final once its record is committed. Whoever coordinates the id then
writes the markers, until every partition has one.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    """The state, as a record of the transaction log has it."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


_S = TransactionState
IDLE: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""There is no transaction."""

PREPARED: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
"""The transaction is decided, and markers are being written."""

PREVIOUS: Final = {
    _S.EMPTY: IDLE,
    _S.ONGOING: IDLE | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: IDLE | {_S.ONGOING},  # without partitions: transaction version 2 only
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: IDLE,
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}
"""The states from which each state can be reached."""

NAMES: Final = {
    _S.EMPTY: "Empty",
    _S.ONGOING: "Ongoing",
    _S.PREPARE_COMMIT: "PrepareCommit",
    _S.PREPARE_ABORT: "PrepareAbort",
    _S.COMPLETE_COMMIT: "CompleteCommit",
    _S.COMPLETE_ABORT: "CompleteAbort",
    _S.DEAD: "Dead",
    _S.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}
"""What DescribeTransactions and ListTransactions call the states."""
