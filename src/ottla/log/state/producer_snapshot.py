"""Snapshots of producer state: Kafka's `.snapshot` files, version 1.

version (2 bytes), CRC-32C (4) of what follows, then an array of entries: producer id, epoch,
last sequence, last offset, offset delta, timestamp, coordinator epoch, first offset of the
open transaction. An entry holds one batch: the last one of its producer, as Kafka writes it.

A log with few producers has its older batches too, each in an entry of its own, oldest first: so
a clean restart forgets no batch that a client may send again. A reader that keeps one entry for
each producer, as Kafka does, keeps the last one. With more producers each has one entry, so a
snapshot has at most 46 bytes a producer and 180 KiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct, error

from ottla.log.state.producer_states import SEQUENCE_MASK
from ottla.log.state.producer_table import OLDER_SIZE, ProducerEntry, ProducerTable, pack_batch
from ottla.records.checksum import crc32c

_VERSION = 1
_HEADER = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_CRC_START = 6
_pack = _ENTRY.pack

MOST_WITH_OLDER_BATCHES = 1000
"""How many producers a log may have for a snapshot to hold more than their last batches."""


class CorruptSnapshot(ValueError):
    """The file is not a snapshot, or its CRC does not match."""


def encode_snapshot(entries: Mapping[int, ProducerEntry]) -> bytes:
    """Return the content of a snapshot file."""
    older = encode_older_batches(entries) if len(entries) <= MOST_WITH_OLDER_BATCHES else b""
    return finish_snapshot([older, encode_entries(entries.items())])


def encode_older_batches(entries: Mapping[int, ProducerEntry]) -> bytes:
    """Return an entry for each batch that is not the last one of its producer."""
    packed = []
    for producer_id, entry in entries.items():
        epoch, _, _, coordinator_epoch, txn = entry
        for _, last_sequence, base_offset, last_offset, timestamp in entry.batches[:-1]:
            delta = last_offset - base_offset
            packed.append(
                _pack(
                    producer_id, epoch, last_sequence, last_offset, delta, timestamp,
                    coordinator_epoch, txn,
                )
            )  # fmt: skip
    return b"".join(packed)


def encode_entries(entries: Iterable[tuple[int, ProducerEntry]]) -> bytes:
    """Return the entry of each producer, with its last batch."""
    packed = []
    for producer_id, entry in entries:
        epoch, _, timestamp, coordinator_epoch, txn = entry
        last_sequence, last_offset, delta = -1, -1, 0
        last = entry.last_batch
        if last is not None:
            _, last_sequence, base_offset, last_offset, _ = last
            delta = last_offset - base_offset
        packed.append(
            _pack(
                producer_id, epoch, last_sequence, last_offset, delta, timestamp,
                coordinator_epoch, txn,
            )
        )  # fmt: skip
    return b"".join(packed)


def finish_snapshot(parts: Iterable[bytes]) -> bytes:
    """Return the content of a snapshot file with the given encoded entries."""
    packed = b"".join(parts)
    body = (len(packed) // _ENTRY.size).to_bytes(4, "big") + packed
    return _VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body


def decode_snapshot(content: bytes) -> ProducerTable:
    """Return the entries of a snapshot file; raise CorruptSnapshot."""
    try:
        version, crc, count = _HEADER.unpack_from(content)
    except error:
        raise CorruptSnapshot(f"{len(content)} bytes are too few for a snapshot") from None
    if version != _VERSION:
        raise CorruptSnapshot(f"version {version} is unknown")
    with memoryview(content) as view:
        if crc32c(view[_CRC_START:]) != crc:
            raise CorruptSnapshot("the CRC does not match")
        end = _HEADER.size + count * _ENTRY.size
        if count < 0 or end > len(content):
            raise CorruptSnapshot(f"{count} entries do not fit")
        entries = ProducerTable()
        try:
            for fields in _ENTRY.iter_unpack(view[_HEADER.size : end]):
                _add(entries, fields)
        except error:
            raise CorruptSnapshot(f"an entry has impossible offsets: {fields}") from None
    return entries


def _add(entries: ProducerTable, fields: tuple[int, ...]) -> None:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn = fields
    earlier = entries.get(producer_id)
    packed = b""
    if earlier is not None and earlier.producer_epoch == epoch:
        packed = earlier.packed
    if offset >= 0:
        first = (sequence - delta) & SEQUENCE_MASK if sequence >= 0 else sequence
        batch = pack_batch(first, sequence, offset - delta, offset, timestamp)
        packed = packed[-OLDER_SIZE:] + batch
    entries[producer_id] = ProducerEntry(epoch, packed, timestamp, coordinator_epoch, txn)
