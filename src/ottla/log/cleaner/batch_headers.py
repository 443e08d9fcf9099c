"""The headers of many batches at once, as arrays (numpy)."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

import numpy as np

from ottla.log.cleaner.batch_codecs import LZ4_HEADER, LZ4_ONE_BLOCK
from ottla.log.cleaner.record_arrays import Array
from ottla.log.segment.batch_scan import header_at
from ottla.ports import Buffer
from ottla.records.batch import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    CONTROL_MASK,
    CRC_OFFSET,
    DELETE_HORIZON_MASK,
    HEADER_SIZE,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC_V2,
    TRANSACTIONAL_MASK,
    Batch,
    CorruptBatch,
    parse_header,
)
from ottla.records.checksum import crc32c
from ottla.records.compression import LZ4

_START: Final = Struct(">iib")
"""Length, leader epoch and magic, which follow the base offset."""
_SMALLEST: Final = HEADER_SIZE - LOG_OVERHEAD
_HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("partition_leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)

_LZ4_FRAME: Final = np.dtype([("head", f"S{len(LZ4_HEADER)}"), ("block_size", "<u4")])

assert _HEADER.itemsize == HEADER_SIZE


def find_batches(data: bytearray, start: int, end: int) -> tuple[list[int], int, int]:
    """Find the whole batches in data[start:end].

    Return their positions, where the last one ends, and how many bytes the next batch needs at
    least, 0 if nothing follows. Raise CorruptBatch where no batch begins.
    """
    positions: list[int] = []
    position, unpack = start, _START.unpack_from
    while end - position >= HEADER_SIZE:
        length, _, magic = unpack(data, position + LENGTH_OFFSET)
        if magic != MAGIC_V2:
            raise CorruptBatch(position, f"it has the old format {magic}")
        if length < _SMALLEST:
            raise CorruptBatch(position, f"batch length {length} is below a header's")
        following = position + LOG_OVERHEAD + length
        if following > end:
            return positions, position, LOG_OVERHEAD + length
        positions.append(position)
        position = following
    if position == end:
        return positions, position, 0
    with memoryview(data) as view, view[:end] as rest:
        batch = header_at(rest, position, position)
    if batch is not None:  # a short message of an old format
        raise CorruptBatch(position, f"it has the old format {batch.magic}")
    return positions, position, HEADER_SIZE


class BatchHeaders:
    """The headers of the batches at some positions of a buffer."""

    def __init__(self, data: bytearray, positions: list[int]) -> None:
        self._data = data
        self._positions = positions
        words = np.ndarray((len(data) - HEADER_SIZE + 1,), f"V{HEADER_SIZE}", data, strides=(1,))
        self.starts = np.array(positions, np.int64)
        fields = words[self.starts].view(_HEADER)
        self._fields = fields
        self.base_offsets = fields["base_offset"].astype(np.int64)
        deltas = fields["last_offset_delta"].astype(np.int64)
        self.last_offsets = self.base_offsets + deltas
        self.attributes = fields["attributes"].astype(np.int64)
        self.are_control: Array = (self.attributes & CONTROL_MASK) != 0
        self.are_transactional: Array = (self.attributes & TRANSACTIONAL_MASK) != 0
        self.have_delete_horizon: Array = (self.attributes & DELETE_HORIZON_MASK) != 0
        self.leader_epochs = fields["partition_leader_epoch"].astype(np.int64)
        self.counts = fields["record_count"].astype(np.int64)
        self.max_timestamps = fields["max_timestamp"].astype(np.int64)
        self.producer_ids = fields["producer_id"].astype(np.int64)
        self.base_timestamps = fields["base_timestamp"].astype(np.int64)
        sizes = fields["batch_length"].astype(np.int64) + LOG_OVERHEAD
        self.ends = self.starts + sizes
        if len(positions) and (deltas.min() < 0 or self.base_offsets.min() < 0):
            wrong = int(np.flatnonzero((deltas < 0) | (self.base_offsets < 0))[0])
            batch = self.batch(wrong)
            reason = f"offsets {batch.base_offset} to {batch.last_offset}"
            raise CorruptBatch(batch.position, reason)

    def __len__(self) -> int:
        return len(self._positions)

    def batch(self, number: int) -> Batch:
        """Return the header of one batch."""
        return parse_header(self._data, self._positions[number])

    def between(self, first_offset: int, end_offset: int) -> BatchHeaders:
        """Return those that have offsets from the one up to before the other."""
        are: Array = (self.last_offsets >= first_offset) & (self.base_offsets < end_offset)
        return self if are.all() else BatchHeaders(self._data, self.starts[are].tolist())

    def check_crcs(self, chosen: Array) -> None:
        """Raise CorruptBatch if one of these batches does not match its CRC."""
        computed = _crcs(self._data, self.starts[chosen], self.ends[chosen])
        is_wrong = np.array(computed, np.uint32) != self._fields["crc"][chosen]
        if is_wrong.any():
            wrong = int(np.flatnonzero(is_wrong)[0])
            batch = self.batch(int(chosen[wrong]))
            raise CorruptBatch(
                batch.position, f"CRC {batch.crc:#010x} is stored, {computed[wrong]:#010x} computed"
            )

    def have_one_block(self, numbers: Array) -> bool:
        """Return True if the records of each of these batches are an LZ4 frame of one block.

        So are nearly all that clients send.
        """
        attributes = self.attributes[numbers]
        sizes = self.ends[numbers] - self.starts[numbers] - HEADER_SIZE
        before, after = LZ4_ONE_BLOCK
        if (attributes & COMPRESSION_MASK != LZ4).any() or sizes.min() <= before + after:
            return False
        starts = self.starts[numbers] + HEADER_SIZE
        heads = np.ndarray((len(self._data) - before + 1,), f"V{before}", self._data, strides=(1,))
        found = heads[starts].view(_LZ4_FRAME)
        tails = np.ndarray((len(self._data) - after + 1,), f"V{after}", self._data, strides=(1,))
        ends = tails[self.ends[numbers] - after].view("<u4")
        is_whole = found["block_size"].astype(np.int64) == sizes - before - after
        return bool((is_whole & (found["head"] == LZ4_HEADER) & (ends == 0)).all())

    def with_fewer_records(
        self,
        numbers: Array,
        counts: Array,
        timestamps: Array,
        records: Sequence[Sequence[Buffer]],
        sizes: Array,
    ) -> tuple[bytearray, Array]:
        """Return batches with the headers of these and with other records, one after the other.

        The records of each are in pieces, and have a size together. `counts` says how many they
        are, and `timestamps` has the largest ones. Also return where each batch ends.
        """
        headers = self._fields[numbers]
        headers["record_count"] = counts
        headers["max_timestamp"] = timestamps
        headers["batch_length"] = sizes + (HEADER_SIZE - LOG_OVERHEAD)
        pieces: list[Buffer] = []
        with memoryview(headers.tobytes()) as view:
            for at, each in enumerate(records):
                pieces.append(view[at * HEADER_SIZE : (at + 1) * HEADER_SIZE])
                pieces += each
            made = bytearray().join(pieces)
        ends = np.cumsum(sizes + HEADER_SIZE)
        starts = ends - sizes - HEADER_SIZE
        computed = _crcs(made, starts, ends)
        words = np.ndarray((len(made) - 3,), "V4", made, strides=(1,))
        words[starts + CRC_OFFSET] = np.array(computed, ">u4").view("V4")
        return made, ends


def _crcs(data: bytearray, starts: Array, ends: Array) -> list[int]:
    """Return the CRCs of batches, each from its attributes on."""
    with memoryview(data) as view:
        ranges = map(slice, (starts + ATTRIBUTES_OFFSET).tolist(), ends.tolist())
        return list(map(crc32c, map(view.__getitem__, ranges)))
