"""The producers of a log by id, each as one bytes object.

There may be hundreds of thousands of producers. Python's garbage collection would look at as many
tuples, and hold the loop meanwhile. It does not look at bytes, nor at a dict of ints and bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from struct import Struct
from typing import Final, NamedTuple

RETAINED_BATCHES: Final = 5

_BATCH = Struct(">iiqqq")
BATCH_SIZE: Final = _BATCH.size
OLDER_SIZE: Final = (RETAINED_BATCHES - 1) * BATCH_SIZE
"""How many bytes of batches are kept when a batch is added."""
pack_batch: Final = _BATCH.pack
"""Return a batch as it is in `ProducerEntry.packed`."""

_HEAD = Struct(">hiqq")
HEAD_SIZE: Final = _HEAD.size
pack_head: Final = _HEAD.pack
"""Return the first bytes of a packed entry, before its batches: the producer's epoch, that of the
coordinator, the last timestamp and the first offset of the open transaction."""
unpack_head: Final = _HEAD.unpack_from


class ProducerBatch(NamedTuple):
    """Sequences and offsets of one batch of a producer."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry(NamedTuple):
    """The state of one producer id."""

    producer_epoch: int
    packed: bytes
    """Its last batches, oldest first; see `batches`."""
    last_timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int

    @classmethod
    def of(
        cls,
        producer_epoch: int,
        batches: Iterable[ProducerBatch],
        last_timestamp: int,
        coordinator_epoch: int,
        current_txn_first_offset: int,
    ) -> ProducerEntry:
        """Return an entry with these batches, oldest first."""
        packed = b"".join(pack_batch(*batch) for batch in batches)
        return cls(
            producer_epoch, packed, last_timestamp, coordinator_epoch, current_txn_first_offset
        )

    @property
    def batches(self) -> tuple[ProducerBatch, ...]:
        """The last batches, oldest first."""
        return tuple(map(ProducerBatch._make, _BATCH.iter_unpack(self.packed)))

    def find(self, base_sequence: int, last_sequence: int) -> ProducerBatch | None:
        """Return the batch with these sequences, if it is one of the last."""
        for batch in self.batches:
            if batch[0] == base_sequence and batch[1] == last_sequence:
                return batch
        return None

    @property
    def last_batch(self) -> ProducerBatch | None:
        packed = self.packed
        if not packed:
            return None
        return ProducerBatch._make(_BATCH.unpack_from(packed, len(packed) - BATCH_SIZE))

    @property
    def last_sequence(self) -> int:
        last = self.last_batch
        return -1 if last is None else last.last_sequence


class ProducerTable(MutableMapping[int, ProducerEntry]):
    """Entries by producer id. One is unpacked when somebody asks for it."""

    __slots__ = ("packed",)

    def __init__(self, packed: dict[int, bytes] | None = None) -> None:
        self.packed: dict[int, bytes] = {} if packed is None else packed
        """Each entry as bytes: the head, then the batches."""

    def __getitem__(self, producer_id: int) -> ProducerEntry:
        packed = self.packed[producer_id]
        epoch, coordinator_epoch, timestamp, txn = unpack_head(packed)
        return ProducerEntry(epoch, packed[HEAD_SIZE:], timestamp, coordinator_epoch, txn)

    def __setitem__(self, producer_id: int, entry: ProducerEntry) -> None:
        epoch, batches, timestamp, coordinator_epoch, txn = entry
        self.packed[producer_id] = pack_head(epoch, coordinator_epoch, timestamp, txn) + batches

    def __delitem__(self, producer_id: int) -> None:
        del self.packed[producer_id]

    def __contains__(self, producer_id: object) -> bool:
        return producer_id in self.packed

    def __iter__(self) -> Iterator[int]:
        return iter(self.packed)

    def __len__(self) -> int:
        return len(self.packed)

    def copy(self) -> ProducerTable:
        """Return a table with the same entries."""
        return ProducerTable(self.packed.copy())

    def clear(self) -> None:
        """Remove all entries."""
        self.packed.clear()

    def replace_all(self, table: ProducerTable) -> None:
        """Take all entries of another table, and no others."""
        self.packed.clear()
        self.packed.update(table.packed)
