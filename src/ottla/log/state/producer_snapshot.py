"""Snapshots of producer state: Kafka's `.snapshot` files, version 1.

version (2 bytes), CRC-32C (4) of what follows, then an array of entries: producer id, epoch,
last sequence, last offset, offset delta, timestamp, coordinator epoch, first offset of the
open transaction. An entry holds one batch. Kafka writes the last batch of each producer and
forgets the others at a restart. Here each retained batch has an entry of its own, oldest first:
a reader that keeps one entry for each producer keeps the last one, as it should.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct, error

from ottla.log.state.producer_states import (
    RETAINED_BATCHES,
    SEQUENCE_MASK,
    ProducerBatch,
    ProducerEntry,
)
from ottla.records.checksum import crc32c

_VERSION = 1
_HEADER = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_CRC_START = 6


class CorruptSnapshot(ValueError):
    """The file is not a snapshot, or its CRC does not match."""


def encode_snapshot(entries: Mapping[int, ProducerEntry]) -> bytes:
    """Return the content of a snapshot file."""
    packed = []
    for producer_id, entry in entries.items():
        epoch, batches, timestamp, coordinator_epoch, txn = entry
        for batch in batches[:-1]:
            packed.append(_pack(producer_id, epoch, batch, batch[4], coordinator_epoch, txn))
        last = batches[-1] if batches else None
        packed.append(_pack(producer_id, epoch, last, timestamp, coordinator_epoch, txn))
    body = len(packed).to_bytes(4, "big") + b"".join(packed)
    return _VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body


def decode_snapshot(content: bytes) -> dict[int, ProducerEntry]:
    """Return the entries of a snapshot file; raises CorruptSnapshot."""
    try:
        version, crc, count = _HEADER.unpack_from(content)
    except error:
        raise CorruptSnapshot(f"{len(content)} bytes are too few for a snapshot") from None
    if version != _VERSION:
        raise CorruptSnapshot(f"version {version} is unknown")
    if crc32c(content[_CRC_START:]) != crc:
        raise CorruptSnapshot("the CRC does not match")
    if count < 0 or _HEADER.size + count * _ENTRY.size > len(content):
        raise CorruptSnapshot(f"{count} entries do not fit")
    entries: dict[int, ProducerEntry] = {}
    for number in range(count):
        _add(entries, _ENTRY.unpack_from(content, _HEADER.size + number * _ENTRY.size))
    return entries


def _pack(
    producer_id: int,
    epoch: int,
    batch: ProducerBatch | None,
    timestamp: int,
    coordinator_epoch: int,
    txn: int,
) -> bytes:
    if batch is None:
        return _ENTRY.pack(producer_id, epoch, -1, -1, 0, timestamp, coordinator_epoch, txn)
    _, last_sequence, base_offset, last_offset, _ = batch
    delta = last_offset - base_offset
    return _ENTRY.pack(
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, txn
    )


def _add(entries: dict[int, ProducerEntry], fields: tuple[int, ...]) -> None:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn = fields
    batches: tuple[ProducerBatch, ...] = ()
    earlier = entries.get(producer_id)
    if earlier is not None and earlier.producer_epoch == epoch:
        batches = earlier.batches
    if offset >= 0:
        first = (sequence - delta) & SEQUENCE_MASK if sequence >= 0 else sequence
        batch = ProducerBatch(first, sequence, offset - delta, offset, timestamp)
        batches = (*batches, batch)[-RETAINED_BATCHES:]
    entries[producer_id] = ProducerEntry(epoch, batches, timestamp, coordinator_epoch, txn)
