"""What a clean finds in a chunk, as arrays (numpy), and as bytes for another process."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

import numpy as np

from ottla.log.cleaner.record_arrays import Array
from ottla.ports import Buffer

_KEYS: Final = Struct("=4Iq")
_KEPT: Final = Struct("=qq")


class FoundKeys(NamedTuple):
    """The keys of some batches that are looked at together."""

    highs: Array
    """The upper halves of their hashes."""
    lows: Array
    offsets: Array
    """The offset of each of their records, which rise."""
    tombstones: Array
    """Offsets of records without a value."""
    without_key: Array
    """Offsets of records without a key."""
    most: int
    """How many records there are, so how many different keys at most."""
    is_regular: bool
    """False if a batch without gaps has other offsets than its header says."""


class KeptBatches(NamedTuple):
    """What stays of some batches: an element for each one that stays."""

    sizes: Array
    last_offsets: Array
    timestamps: Array
    """The largest timestamp of each."""
    unchanged_bytes: int
    """How many bytes are batches that stay as they are."""


def pack_keys(groups: list[FoundKeys]) -> list[Buffer]:
    """Return keys as bytes, in pieces."""
    packed: list[Buffer] = []
    for each in groups:
        sizes = len(each.highs), len(each.tombstones), len(each.without_key)
        packed.append(_KEYS.pack(*sizes, each.most, each.is_regular))
        packed += map(_bytes_of, each[:5])
    return packed


def unpack_keys(packed: Buffer) -> Iterator[FoundKeys]:
    """Yield the keys that `pack_keys` has packed."""
    position = 0
    while position < len(packed):
        keys, tombstones, without_key, most, is_regular = _KEYS.unpack_from(packed, position)
        position += _KEYS.size
        hashes = np.frombuffer(packed, np.uint64, 2 * keys, position)
        position += 16 * keys
        numbers = np.frombuffer(packed, np.int64, keys + tombstones + without_key, position)
        position += 8 * len(numbers)
        offsets, deleted, others = np.split(numbers, (keys, keys + tombstones))
        yield FoundKeys(
            hashes[:keys], hashes[keys:], offsets, deleted, others, most, bool(is_regular)
        )


def pack_kept(kept: KeptBatches) -> list[Buffer]:
    """Return the same for batches that stay."""
    head = _KEPT.pack(len(kept.sizes), kept.unchanged_bytes)
    return [head, *map(_bytes_of, kept[:3])]


def unpack_kept(packed: Buffer) -> KeptBatches:
    """Return what `pack_kept` has packed."""
    count, unchanged_bytes = _KEPT.unpack_from(packed)
    columns = np.frombuffer(packed, np.int64, 3 * count, _KEPT.size).reshape(3, count)
    return KeptBatches(columns[0], columns[1], columns[2], unchanged_bytes)


def _bytes_of(column: Array) -> memoryview:
    return np.ascontiguousarray(column).view(np.uint8).data
