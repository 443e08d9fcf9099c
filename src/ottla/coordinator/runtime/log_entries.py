"""The records of a coordinator's log as entries, decoded on the loop or in a helper process.

Decoding takes most of the time of a load. A helper process also drops what later records in the
same bytes replace, so a log with many commits of few keys costs the loop next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, TypeAlias

from ottla.model.ids import NO_PRODUCER_ID
from ottla.ports import Buffer
from ottla.records.batch import Batch, scan
from ottla.records.record import records_of

TASK: Final = "ottla.coordinator.runtime.log_entries:compact"

Entry: TypeAlias = tuple[int, int, bool, bytes | None, bytes | None]
"""Offset, producer id (of a transaction, else NO_PRODUCER_ID), is it a marker, key, value."""

_HEAD: Final = Struct(">qqbii")  # an entry: offset, producer id, is a marker, lengths
_NEXT_OFFSET: Final = Struct(">q")
_NULL: Final = -1


def entries_of(data: Buffer, batch: Batch) -> Iterator[Entry]:
    """Iterate over the records of a batch. Raise CorruptBatch."""
    producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER_ID
    is_marker = batch.is_control
    if is_marker:
        producer_id = batch.producer_id
    for offset, _, key, value, _ in records_of(data[batch.position : batch.end]):
        yield offset, producer_id, is_marker, key, value


def task_data(latest_only: Sequence[bytes], data: Buffer) -> bytes:
    """Return what the task takes: key prefixes whose last record alone counts, and bytes."""
    prefixes = b"".join(bytes((len(prefix),)) + prefix for prefix in latest_only)
    return b"".join((bytes((len(latest_only),)), prefixes, data))


def compact(task: Buffer) -> bytes:
    """Return the entries of whole batches without those that later ones replace, as bytes.

    Transactions depend on the order of records, so no entry is moved past one of a transaction.
    """
    position = 1
    prefixes = []
    for _ in range(task[0]):
        end = position + 1 + task[position]
        prefixes.append(bytes(task[position + 1 : end]))
        position = end
    latest_only = tuple(prefixes)
    left: list[Entry] = []
    latest: dict[bytes, Entry] = {}
    next_offset = -1
    data = bytes(memoryview(task)[position:])
    for batch in scan(data, 0, len(data)):
        next_offset = batch.next_offset
        if batch.is_transactional or batch.is_control:
            left += latest.values()
            left += entries_of(data, batch)
            latest = {}
            continue
        for offset, _, key, value, _ in records_of(data[batch.position : batch.end]):
            entry = offset, NO_PRODUCER_ID, False, key, value
            if key is not None and key.startswith(latest_only):
                latest[key] = entry
            else:
                left.append(entry)
    left += latest.values()
    return _NEXT_OFFSET.pack(next_offset) + b"".join(map(_pack, left))


def compacted(result: bytes) -> tuple[int, Iterator[Entry]]:
    """Return the offset after the last batch and the entries of a task's result."""
    return _NEXT_OFFSET.unpack_from(result)[0], _unpack(result)


def _pack(entry: Entry) -> bytes:
    offset, producer_id, is_marker, key, value = entry
    key_length = _NULL if key is None else len(key)
    value_length = _NULL if value is None else len(value)
    head = _HEAD.pack(offset, producer_id, is_marker, key_length, value_length)
    return b"".join((head, key or b"", value or b""))


def _unpack(result: bytes) -> Iterator[Entry]:
    position, end = _NEXT_OFFSET.size, len(result)
    while position < end:
        offset, producer_id, is_marker, key_length, value_length = _HEAD.unpack_from(
            result, position
        )
        position += _HEAD.size
        key = value = None
        if key_length != _NULL:
            key = result[position : position + key_length]
            position += key_length
        if value_length != _NULL:
            value = result[position : position + value_length]
            position += value_length
        yield offset, producer_id, bool(is_marker), key, value
