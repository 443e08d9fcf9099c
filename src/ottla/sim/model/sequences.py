"""What a partition must remember of one idempotent producer: its epoch and last five batches."""

from __future__ import annotations

from enum import Enum
from typing import Final

from ottla.sim.model.batch import Sent

_KEPT: Final = 5
_MASK: Final = 0x7FFFFFFF


class Verdict(Enum):
    """What the broker must make of a batch."""

    NEW = "new"
    DUPLICATE = "duplicate"
    OUT_OF_ORDER = "out of order"
    FENCED = "fenced"
    ANY = "anything"


class SequenceModel:
    """One producer on one partition.

    The broker may remember batches before those in `batches` while `has_older` is set: after
    a crash or a power failure nobody knows which. `is_expired` is set once the producer was
    silent for so long that the broker may have forgotten all of it.
    """

    __slots__ = ("batches", "has_older", "is_expired", "last_timestamp", "producer_epoch")

    def __init__(self) -> None:
        self.producer_epoch = -1
        self.batches: list[Sent] = []
        self.last_timestamp = 0
        self.has_older = False
        self.is_expired = False

    def judge(self, sent: Sent) -> Verdict:
        """Return what must become of a batch that the broker gets now."""
        _, epoch, base_sequence = sent.producer
        if not self.batches:
            return Verdict.ANY if self.has_older else Verdict.NEW
        if epoch < self.producer_epoch:
            return Verdict.FENCED
        if epoch > self.producer_epoch:
            return Verdict.NEW if base_sequence == 0 else Verdict.OUT_OF_ORDER
        if base_sequence == (self.batches[-1].last_sequence + 1) & _MASK:
            return Verdict.NEW
        for batch in self.batches:
            if (batch.producer, batch.count) == (sent.producer, sent.count):
                return Verdict.DUPLICATE
        return Verdict.ANY if self.has_older else Verdict.OUT_OF_ORDER

    def append(self, sent: Sent) -> None:
        """Append a batch that is in the log, behind all others of its producer."""
        if sent.producer.producer_epoch != self.producer_epoch:
            if self.batches:
                self.has_older = False
            self.batches = []
        self.producer_epoch = sent.producer.producer_epoch
        self.batches = [*self.batches, sent][-_KEPT:]
        self.last_timestamp = max(sent.timestamps)
        self.is_expired = False
        if len(self.batches) == _KEPT:
            self.has_older = False

    def doubt(self) -> None:
        """Take note that nobody knows what the broker remembers."""
        self.batches = []
        self.has_older = True
