"""What clients were told about one partition, and what may therefore be in its log.

Invariants, checked with everything that is learned:
    an offset belongs to one batch for as long as that batch is there
    batches lie one after the other without holes from the log start to the high watermark
    a batch is there as it was sent, and an idempotent one at most once
    what was refused is not there
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from enum import Enum

from ottla.records.batch import LOG_APPEND_TIME, Batch
from ottla.records.record import records_of
from ottla.sim.model.batch import Fate, Sent, uid_of
from ottla.sim.model.sequences import SequenceModel
from ottla.sim.network.exchange import Violation


class End(Enum):
    """How a process ended, the worst last."""

    CLEAN = "clean"
    KILL = "kill"
    POWER = "power"


class Entry:
    """A batch in the log. `crc` and `size` are those of the stored bytes, once they were seen."""

    __slots__ = ("base_offset", "crc", "leader_epoch", "sent", "size", "timestamps")

    def __init__(self, base_offset: int, sent: Sent, timestamps: tuple[int, ...]) -> None:
        self.base_offset = base_offset
        self.sent = sent
        self.timestamps = timestamps
        self.crc = -1
        self.size = -1
        self.leader_epoch = -1

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.sent.count


class PartitionModel:
    """One partition of a topic.

    Clients were told that everything below `end` is there; `acked_end` also counts what was
    acknowledged since the node settled last, which readers do not see yet. Nothing below
    `start` is served any more. Batches in `maybe` may be in the log or not.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.start = 0
        self.end = 0
        self.acked_end = 0
        self.durable_end = 0
        """A power failure takes nothing below it."""
        self.entries: dict[int, Entry] = {}
        self.bases: list[int] = []
        self.maybe: dict[int, Sent] = {}
        self.producers: dict[int, SequenceModel] = {}
        self._taken_back: dict[int, Sent] = {}
        self._removed: dict[int, Sent] = {}
        self.worst_end = End.CLEAN
        """The worst that happened since the partition was audited."""
        self.highest_start = 0
        """The highest log start told: a crash may bring records back, but not their epochs."""
        self.start_may_be = 0
        """Up to where an unanswered DeleteRecords may have moved the start."""

    # -- learning ------------------------------------------------------------------------

    def acknowledge(self, sent: Sent, base_offset: int, append_time: int) -> None:
        """Learn that the broker acknowledged the batch at this offset."""
        self.maybe.pop(sent.uid, None)
        if sent.fate in (Fate.ACKED, Fate.DELETED):
            if base_offset not in sent.told:
                raise Violation(f"{self.name}: {sent} at {sent.offset} is also at {base_offset}")
            return
        if base_offset < self.acked_end:
            raise Violation(
                f"{self.name}: {sent} is acknowledged at {base_offset}, the log has"
                f" {self.acked_end} already"
            )
        self._check_gap(self.acked_end, base_offset)
        self._add(sent, base_offset, append_time)
        self.acked_end = base_offset + sent.count

    def refuse(self, sent: Sent) -> None:
        """Learn that the broker refused the batch: it must not be there."""
        if sent.fate is Fate.OPEN and sent.uid not in self.maybe:
            sent.fate = Fate.REFUSED

    def take_back(self, sent: Sent) -> None:
        """Learn that the batch was cut off again: only a power failure may bring it back."""
        self.refuse(sent)
        if sent.fate is Fate.REFUSED:
            self._taken_back[sent.uid] = sent

    def doubt(self, sent: Sent) -> None:
        """Take note that nobody knows whether the batch is there."""
        if sent.fate not in (Fate.ACKED, Fate.DELETED):
            sent.fate = Fate.OPEN
            self.maybe[sent.uid] = sent

    def doubt_doubled(self, sent: Sent) -> None:
        """Take note that nobody knows whether the batch is there twice."""
        sent.is_doubled = True
        self.maybe[sent.uid] = sent

    def settled(self, *, flushes: bool) -> None:
        """Let readers see what was acknowledged; with flush.messages=1 it is on disk as well."""
        if self.acked_end > self.end:
            self.end = self.acked_end
            if flushes:
                self.durable_end = self.end

    def see(self, sents: dict[int, Sent], batch: Batch, data: bytes) -> Entry:
        """Check a batch that a reader got, and learn from it; `data` are its bytes."""
        entry = self.entries.get(batch.base_offset)
        if entry is not None and entry.crc == batch.crc and entry.size == batch.size:
            return entry
        sent = self._recognize(sents, batch, data)
        if entry is None or entry.sent is not sent:
            entry = self._make_way(sent, batch)
        if entry is None:
            entry = self._learn(sent, batch)
        elif entry.sent is not sent:
            raise Violation(
                f"{self.name}: {entry.sent} was at {batch.base_offset}, now {sent} is there"
            )
        entry.crc, entry.size = batch.crc, batch.size
        entry.leader_epoch = batch.partition_leader_epoch
        return entry

    def _make_way(self, sent: Sent, batch: Batch) -> Entry | None:
        """Return what is known at a batch's offset, after removing what a power failure took.

        What was not forced to disk may be gone, and what was there before it, and was cut off,
        back in its place.
        """
        offset = batch.base_offset
        is_back = self.worst_end is End.POWER and sent.uid in self.maybe
        if is_back and self.durable_end <= offset < self.acked_end:
            self.cut(offset)
        return self.entries.get(offset)

    def _learn(self, sent: Sent, batch: Batch) -> Entry:
        """Learn where a batch is whose fate was open."""
        if sent.fate is Fate.REFUSED:
            raise Violation(f"{self.name}: {sent} was refused and is at {batch.base_offset}")
        if sent.fate is Fate.ACKED and not sent.is_doubled:
            raise Violation(
                f"{self.name}: {sent} is at {sent.offset} and again at {batch.base_offset}"
            )
        if self._removed.get(batch.base_offset, sent) is not sent:
            raise Violation(f"{self.name}: {sent} is at the offset of a removed batch")
        self.maybe.pop(sent.uid, None)
        append_time = batch.max_timestamp if batch.timestamp_type == LOG_APPEND_TIME else -1
        entry = self._add(sent, batch.base_offset, append_time)
        self.acked_end = max(self.acked_end, entry.next_offset)
        self.end = max(self.end, entry.next_offset)
        return entry

    def _add(self, sent: Sent, base_offset: int, append_time: int) -> Entry:
        timestamps = sent.timestamps if append_time < 0 else (append_time,) * sent.count
        entry = Entry(base_offset, sent, timestamps)
        slot = bisect_left(self.bases, base_offset)
        before = self.entries[self.bases[slot - 1]] if slot else None
        after = self.entries[self.bases[slot]] if slot < len(self.bases) else None
        if (before is not None and before.next_offset > base_offset) or (
            after is not None and entry.next_offset > after.base_offset
        ):
            raise Violation(f"{self.name}: {sent} at {base_offset} lies over another batch")
        insort(self.bases, base_offset)
        self.entries[base_offset] = entry
        sent.fate, sent.offset = Fate.ACKED, base_offset
        sent.told.add(base_offset)
        return entry

    def _check_gap(self, start: int, end: int) -> None:
        """Check that batches of open fate explain a gap between known ones."""
        if end > start + self.open_records:
            raise Violation(f"{self.name}: nobody wrote the offsets {start} to {end - 1}")

    def _recognize(self, sents: dict[int, Sent], batch: Batch, data: bytes) -> Sent:
        records = records_of(data)
        sent = sents.get(uid_of(records[0].value)) if records else None
        where = f"{self.name} at {batch.base_offset}"
        if sent is None:
            raise Violation(f"{where}: a batch nobody sent: {batch}")
        if [record.value for record in records] != list(sent.values):
            raise Violation(f"{where}: {sent} has other records than were sent")
        if [record.offset for record in records] != list(
            range(batch.base_offset, batch.next_offset)
        ):
            raise Violation(f"{where}: the offsets of {sent} have holes")
        if batch[9:12] != sent.producer:
            raise Violation(f"{where}: {sent} has the producer fields {batch[9:12]}")
        if batch.timestamp_type != LOG_APPEND_TIME and [r.timestamp for r in records] != list(
            sent.timestamps
        ):
            raise Violation(f"{where}: {sent} has other timestamps than were sent")
        return sent

    # -- crashes -------------------------------------------------------------------------

    def ended(self, end: End) -> None:
        """Take note of how the process ended."""
        self.worst_end = max(self.worst_end, end, key=list(End).index)
        if end is End.POWER:
            self._lose_power()

    def _lose_power(self) -> None:
        """Take note that what was not synced may be gone, and what was cut off may be back."""
        for sent in self._taken_back.values():
            if sent.fate is Fate.REFUSED:
                self.doubt(sent)
        self._taken_back.clear()
        for producer in self.producers.values():
            producer.doubt()

    def resolve(self) -> None:
        """Conclude, after the whole log was read, that what was not found is not there.

        It may have been in what was removed since, which losing power may bring back.
        """
        for sent in self.maybe.values():
            if sent.fate is Fate.OPEN:
                sent.fate = Fate.REFUSED
        if self.start:
            self._taken_back.update(self.maybe)
        self.maybe.clear()
        self.start_may_be = 0
        self.worst_end = End.CLEAN

    # -- ends of the log -----------------------------------------------------------------

    @property
    def open_records(self) -> int:
        """How many records there may be that nobody knows of."""
        return sum(sent.count for sent in self.maybe.values())

    def move_start(self, offset: int) -> None:
        """Move the log start: nothing below this offset is served any more."""
        if offset <= self.start:
            return
        self.start = offset
        self.highest_start = max(self.highest_start, offset)
        self.end = max(self.end, offset)
        self.acked_end = max(self.acked_end, offset)
        while self.bases and self.entries[self.bases[0]].next_offset <= offset:
            base_offset = self.bases.pop(0)
            self._removed[base_offset] = self._drop(base_offset, Fate.DELETED)

    def cut_back(self, end: int) -> None:
        """Cut the log back to the length that a power failure has left.

        A batch that reaches past the end is gone. What was cut off before it came, and is back,
        may be there in its place.
        """
        for entry in self.in_range(end - 1, end + 1):
            if max(entry.base_offset, self.durable_end) < end < entry.next_offset:
                end = entry.base_offset
        self.cut(end)

    def cut(self, end: int) -> None:
        """Cut everything from an offset on, which a power failure took."""
        while self.bases and self.bases[-1] >= end:
            self._drop(self.bases.pop(), Fate.LOST)
        if self.bases and self.entries[self.bases[-1]].next_offset > end:
            raise Violation(f"{self.name}: the log ends at {end}, in the middle of a batch")
        self.end = self.acked_end = end
        self.start = min(self.start, end)
        for base_offset in [base for base in self._removed if base >= end]:
            self._removed.pop(base_offset).lose()

    def forget(self) -> None:
        """Forget everything: the partition is gone, its batches may be sent to a new one."""
        for sent in (*self._removed.values(), *(each.sent for each in self.entries.values())):
            sent.lose()

    def _drop(self, base_offset: int, fate: Fate) -> Sent:
        sent = self.entries.pop(base_offset).sent
        if fate is Fate.LOST:
            sent.lose()
        else:
            sent.fate = fate
        return sent

    def in_range(self, start: int, end: int) -> list[Entry]:
        """Return the known batches that have records in [start, end)."""
        slot = max(bisect_right(self.bases, start) - 1, 0)
        found = []
        for base_offset in self.bases[slot:]:
            if base_offset >= end:
                break
            entry = self.entries[base_offset]
            if entry.next_offset > start:
                found.append(entry)
        return found
