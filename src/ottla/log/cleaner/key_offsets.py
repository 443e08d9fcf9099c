"""The last offset of each key of a range of a log, in plain Python.

This is what a broker uses without numpy. A dict takes about 200 bytes a key and not 24 as the
map of `array_key_offsets.py`, so it takes fewer keys within the same memory.

Keys of 16 bytes and more are replaced by a hash of 16 bytes. Shorter ones are kept as they are, so
that no key equals the hash of another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.model.digest import blake2b
from ottla.ports import Buffer
from ottla.records.batch import CorruptBatch
from ottla.records.varint import read_int, read_long

BYTES_A_KEY: Final = 208
_HASH_BYTES: Final = 16
_MIN_BODY_BYTES: Final = 6
_MORE: Final = 0x80
"""From this value on, a byte of a number is not its last one."""
_NULL: Final = 1
"""The length -1, as it is encoded."""


class BatchRecords(NamedTuple):
    """The records of a batch, decompressed: `data[start:end]`."""

    data: Buffer
    start: int
    end: int
    base_offset: int
    record_count: int
    keep_tombstones: bool = True
    """False if records without a value are removed."""


class Selection(NamedTuple):
    """What is left of the records of a batch."""

    kept: int
    has_tombstones: bool
    """True if some of those that are left delete their keys."""
    max_timestamp_delta: int
    """The largest of those that are left."""
    records: bytes | None
    """Those that are left; None if all are."""


class KeyOffsets:
    """Collects the last offset of each key, then selects the records that are the last ones."""

    def __init__(self, memory_bytes: int, load_factor: float) -> None:
        self._offsets: dict[bytes, int] = {}
        self._most = int(memory_bytes // BYTES_A_KEY * load_factor)

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def utilization(self) -> float:
        """How much of the map is used, from 0 to 1."""
        return len(self._offsets) / max(self._most, 1)

    def add_batches(self, batches: Sequence[BatchRecords], first_offset: int) -> int:
        """Add the records of batches from an offset on; return how many batches were added whole.

        If that is not all, the map is full.
        """
        for number, batch in enumerate(batches):
            if not self._add(batch, first_offset):
                return number
        return len(batches)

    def select_batches(
        self, batches: Sequence[BatchRecords], latest_offset: int
    ) -> list[Selection]:
        """Return the records of each batch that stay.

        Those after `latest_offset` are not in the map, and all of them stay.
        """
        return [self._select(batch, latest_offset) for batch in batches]

    def _add(self, batch: BatchRecords, first_offset: int) -> bool:
        data, base_offset = bytes(batch.data[batch.start : batch.end]), batch.base_offset
        offsets, most = self._offsets, self._most
        position, end = 0, len(data)
        for _ in range(batch.record_count):
            body, record_end = _record(data, position, end)
            position = record_end
            at = body + 1
            while data[at] >= _MORE:  # the timestamp
                at += 1
            delta, at = _small(data, at + 1)
            length, at = _small(data, at)
            if length < -1 or at + length > record_end:
                raise CorruptBatch(0, f"a key of {length} bytes has {record_end - at} left")
            if length < 0 or base_offset + delta < first_offset:
                continue
            key = data[at : at + length]
            if length >= _HASH_BYTES:
                key = blake2b(key, digest_size=_HASH_BYTES).digest()
            if len(offsets) >= most and key not in offsets:
                return False
            offsets[key] = base_offset + delta
        return True

    def _select(self, batch: BatchRecords, latest_offset: int) -> Selection:
        data, base_offset = bytes(batch.data[batch.start : batch.end]), batch.base_offset
        count, keep_tombstones = batch.record_count, batch.keep_tombstones
        last_of = self._offsets.get
        position, end = 0, len(data)
        kept = tombstones = run_start = 0
        max_delta = -(2**63)
        parts: list[bytes] = []
        for _ in range(count):
            body, record_end = _record(data, position, end)
            timestamp_delta, at = read_long(data, body + 1)
            delta, at = _small(data, at)
            length, at = _small(data, at)
            key_end = at if length < 0 else at + length
            if length < -1 or key_end >= record_end:
                raise CorruptBatch(0, f"a key of {length} bytes has {record_end - at} left")
            offset = base_offset + delta
            is_tombstone = data[key_end] == _NULL
            stays = offset > latest_offset
            if not stays and length >= 0 and (keep_tombstones or not is_tombstone):
                key = data[at:key_end]
                if length >= _HASH_BYTES:
                    key = blake2b(key, digest_size=_HASH_BYTES).digest()
                stays = offset >= last_of(key, -1)
            if stays:
                kept += 1
                tombstones += is_tombstone
                max_delta = max(max_delta, timestamp_delta)
            else:
                if run_start < position:
                    parts.append(data[run_start:position])
                run_start = record_end
            position = record_end
        if position != end:
            raise CorruptBatch(0, f"{end - position} bytes follow the last record")
        if kept == count:
            return Selection(kept, tombstones > 0, max_delta, None)
        parts.append(data[run_start:position])
        return Selection(kept, tombstones > 0, max_delta, b"".join(parts))


def _record(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Return where the content of a record begins and ends."""
    length, body = _small(data, position)
    if length < _MIN_BODY_BYTES or body + length > end:
        raise CorruptBatch(0, f"record length {length} with {end - body} bytes left")
    return body, body + length


def _small(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at a position, which mostly has one or two bytes."""
    byte = data[position]
    if byte < _MORE:
        return (byte >> 1) ^ -(byte & 1), position + 1
    more = data[position + 1]
    if more < _MORE:
        number = (byte & 0x7F) | more << 7
        return (number >> 1) ^ -(number & 1), position + 2
    return read_int(data, position)
