"""The last offset of each key of a range of a log, in arrays and compiled loops (numba).

A key takes 24 bytes: a hash of 16 bytes and an offset. The hash is SipHash-2-4 with a secret of
each clean, so nobody can make two keys that count as one. The table is searched from the slot that
the hash says to the next free one.

numba is optional (the extra `compact`). It is imported here only, in a helper process, and only for
logs that are large enough that its start pays (`cleaning_session.py`).

The bytes are not trusted: every length is checked before it is used. The loops return a status.
"""

from __future__ import annotations

from typing import Any, Final

import numba
import numpy as np

from ottla.log.cleaner.key_offsets import Selection
from ottla.records.batch import CorruptBatch

BYTES_A_KEY: Final = 24
_DONE: Final = 0
_FULL: Final = 1
_DAMAGED: Final = 2
_FIRST_SLOTS: Final = 1 << 14
_GROW_FROM: Final = 0.6
"""How full the table gets before it grows."""

_compiled: Any = numba.njit(cache=True, nogil=True, boundscheck=False)
_inlined: Any = numba.njit(inline="always", boundscheck=False)
_U: Any = np.uint64


class CompiledKeyOffsets:
    """The same as `KeyOffsets`, in less memory and time."""

    def __init__(self, memory_bytes: int, load_factor: float, seed: bytes) -> None:
        self._most_slots = max(memory_bytes // BYTES_A_KEY, 2)
        self._load_factor = load_factor
        slots = min(_FIRST_SLOTS, self._most_slots)
        self._table = np.zeros((slots, 3), np.uint64)  # a hash in two halves, and an offset
        self._state = np.array([0, self._limit(slots)], np.int64)
        self._secret = np.frombuffer(seed[:16].ljust(16, b"\0"), np.uint64)
        self._out = np.empty(1 << 16, np.uint8)
        self._result = np.zeros(4, np.int64)

    def __len__(self) -> int:
        return int(self._state[0])

    @property
    def utilization(self) -> float:
        """How much of the map is used, from 0 to 1."""
        return len(self) / max(self._limit(self._most_slots), 1)

    def _limit(self, slots: int) -> int:
        """Return how many keys a table of so many slots may have."""
        share = self._load_factor if slots == self._most_slots else _GROW_FROM
        return min(int(slots * share), slots - 1)  # a search ends at a free slot

    def _grow(self) -> None:
        """Double the table: a small one is faster, because more of it is in the caches."""
        slots = min(2 * len(self._table), self._most_slots)
        table = np.zeros((slots, 3), np.uint64)
        _move(self._table, table)
        self._table = table
        self._state[1] = self._limit(slots)

    def add(self, data: bytes, base_offset: int, count: int, first_offset: int) -> bool:
        """Add the records of a batch from an offset on; return False if the map is full."""
        records, status = np.frombuffer(data, np.uint8), _FULL
        while status == _FULL:
            status = _add(
                records,
                base_offset,
                count,
                first_offset,
                self._secret,
                self._table,
                self._state,
            )
            if status != _FULL or len(self._table) == self._most_slots:
                break
            self._grow()  # then once more: what was added before is there already
        if status == _DAMAGED:
            raise CorruptBatch(0, "a record is longer than its batch, or shorter than its fields")
        return bool(status == _DONE)

    def select(
        self,
        data: bytes,
        base_offset: int,
        count: int,
        latest_offset: int,
        *,
        keep_tombstones: bool,
    ) -> Selection:
        """Return the records of a batch that stay; see `KeyOffsets.select`."""
        if len(self._out) < len(data):
            self._out = np.empty(2 * len(data), np.uint8)
        status = _select(
            np.frombuffer(data, np.uint8),
            base_offset,
            count,
            latest_offset,
            keep_tombstones,
            self._secret,
            self._table,
            self._out,
            self._result,
        )
        if status == _DAMAGED:
            raise CorruptBatch(0, "a record is longer than its batch, or shorter than its fields")
        kept, tombstones, max_delta, length = self._result.tolist()
        records = None if kept == count else self._out[:length].tobytes()
        return Selection(kept, tombstones > 0, max_delta, records)


@_inlined
def _varint(data, position, end):  # type: ignore[no-untyped-def]
    """Return a zigzag number and the position after it, -1 if it is damaged."""
    number = np.int64(0)
    shift = np.int64(0)
    at = position
    while at < end and shift < 64:
        byte = np.int64(data[at])
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            # The sign bit is shifted in by hand: >> of a negative number would copy it.
            return ((number >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(number & 1), at
        shift += 7
    return np.int64(0), np.int64(-1)


@_inlined
def _rotated(value, bits):  # type: ignore[no-untyped-def]
    return (value << _U(bits)) | (value >> _U(64 - bits))


@_inlined
def _round(v0, v1, v2, v3):  # type: ignore[no-untyped-def]
    v0 += v1
    v1 = _rotated(v1, 13) ^ v0
    v0 = _rotated(v0, 32)
    v2 += v3
    v3 = _rotated(v3, 16) ^ v2
    v0 += v3
    v3 = _rotated(v3, 21) ^ v0
    v2 += v1
    v1 = _rotated(v1, 17) ^ v2
    v2 = _rotated(v2, 32)
    return v0, v1, v2, v3


@_compiled
def siphash(data, start, length, secret):  # type: ignore[no-untyped-def]
    """Return SipHash-2-4 of 128 bits as two numbers."""
    v0 = secret[0] ^ _U(0x736F6D6570736575)
    v1 = secret[1] ^ _U(0x646F72616E646F6D) ^ _U(0xEE)
    v2 = secret[0] ^ _U(0x6C7967656E657261)
    v3 = secret[1] ^ _U(0x7465646279746573)
    words = length // 8
    for word in range(words + 1):
        value = _U(0)
        at = start + word * 8
        size = 8 if word < words else length - words * 8
        for i in range(size):
            value |= _U(data[at + i]) << _U(8 * i)
        if word == words:
            value |= _U(length & 0xFF) << _U(56)
        v3 ^= value
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= value
    v2 ^= _U(0xEE)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    first = v0 ^ v1 ^ v2 ^ v3
    v1 ^= _U(0xDD)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return first, v0 ^ v1 ^ v2 ^ v3


@_compiled
def _slot_of(data, start, length, secret, table):  # type: ignore[no-untyped-def]
    """Return the slot of a key, or where it would be, and its hash."""
    high, low = siphash(data, start, length, secret)
    if high == 0 and low == 0:  # that means a free slot
        low = _U(1)
    slots = table.shape[0]
    slot = np.int64(high % _U(slots))
    while (table[slot, 0] != high or table[slot, 1] != low) and (
        table[slot, 0] != 0 or table[slot, 1] != 0
    ):
        slot += 1
        if slot == slots:
            slot = np.int64(0)
    return slot, high, low


@_compiled
def _move(old, table):  # type: ignore[no-untyped-def]
    slots = table.shape[0]
    for number in range(old.shape[0]):
        if old[number, 0] == 0 and old[number, 1] == 0:
            continue
        slot = np.int64(old[number, 0] % _U(slots))
        while table[slot, 0] != 0 or table[slot, 1] != 0:
            slot += 1
            if slot == slots:
                slot = np.int64(0)
        for half in range(3):
            table[slot, half] = old[number, half]


@_compiled
def _add(data, base_offset, count, first_offset, secret, table, state):  # type: ignore[no-untyped-def]
    end = len(data)
    position = np.int64(0)
    for _ in range(count):
        size, body = _varint(data, position, end)
        if body < 0 or size < 6 or body + size > end:
            return _DAMAGED
        position = body + size
        _, at = _varint(data, body + 1, position)
        if at < 0:
            return _DAMAGED
        delta, at = _varint(data, at, position)
        if at < 0:
            return _DAMAGED
        length, at = _varint(data, at, position)
        if at < 0 or length < -1 or at + length > position:
            return _DAMAGED
        offset = base_offset + delta
        if length < 0 or offset < first_offset:
            continue
        slot, high, low = _slot_of(data, at, length, secret, table)
        if table[slot, 0] == 0 and table[slot, 1] == 0:
            if state[0] >= state[1]:
                return _FULL
            state[0] += 1
            table[slot, 0] = high
            table[slot, 1] = low
        table[slot, 2] = _U(offset)
    return _DONE


@_compiled
def _select(  # type: ignore[no-untyped-def]
    data, base_offset, count, latest_offset, keep_tombstones, secret, table, out, result
):
    end = len(data)
    position = np.int64(0)
    kept = np.int64(0)
    tombstones = np.int64(0)
    written = np.int64(0)
    max_delta = np.int64(-(2**63))
    for _ in range(count):
        start = position
        size, body = _varint(data, position, end)
        if body < 0 or size < 6 or body + size > end:
            return _DAMAGED
        position = body + size
        timestamp_delta, at = _varint(data, body + 1, position)
        if at < 0:
            return _DAMAGED
        delta, at = _varint(data, at, position)
        if at < 0:
            return _DAMAGED
        length, at = _varint(data, at, position)
        if at < 0 or length < -1 or at + length > position:
            return _DAMAGED
        value_length, _after = _varint(data, at + max(length, 0), position)
        if _after < 0:
            return _DAMAGED
        offset = base_offset + delta
        stays = offset > latest_offset
        if not stays and length >= 0 and (keep_tombstones or value_length >= 0):
            slot, _, _ = _slot_of(data, at, length, secret, table)
            is_known = table[slot, 0] != 0 or table[slot, 1] != 0
            stays = not is_known or offset >= np.int64(table[slot, 2])
        if stays:
            kept += 1
            if value_length < 0:
                tombstones += 1
            max_delta = max(max_delta, timestamp_delta)
            out[written : written + position - start] = data[start:position]
            written += position - start
    if position != end:
        return _DAMAGED
    result[0] = kept
    result[1] = tombstones
    result[2] = max_delta
    result[3] = written
    return _DONE
