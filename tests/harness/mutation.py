"""Frames and batches damaged in the ways that find mistakes; seeded, so a case can be rerun."""

from __future__ import annotations

import random
import struct

from tests.harness.batches import reseal

EXTREMES = (0, 1, -1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x7FFFFFFF, -0x80000000, 100_000_000)
VARINTS = (b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x08", b"\xff" * 11)
HEADER_BYTES = 8  # API, version and correlation id: kept, or most cases would end there


class Mutator:
    """Makes damaged frames out of good ones."""

    def __init__(self, seed: int, corpus: list[bytes]) -> None:
        self._chance = random.Random(seed)
        self._corpus = corpus

    def frame(self) -> bytes:
        """Return a frame of the corpus with one thing wrong with it, or a few."""
        frame = bytearray(self._chance.choice(self._corpus))
        keep = HEADER_BYTES if self._chance.random() < 0.95 else 0
        for _ in range(self._chance.choice((1, 1, 1, 2, 2, 4))):
            frame = self._damage(frame, keep)
        return bytes(frame)

    def batch(self, batch: bytes, *, sealed: bool) -> bytes:
        """Return a batch with one to three errors; `sealed` gives it a CRC that fits."""
        damaged = bytearray(batch)
        for _ in range(self._chance.randint(1, 3)):
            damaged = self._damage(damaged, 12)
        if self._chance.random() < 0.8 and len(damaged) >= 12:
            struct.pack_into(">i", damaged, 8, len(damaged) - 12)
        return reseal(damaged) if sealed and len(damaged) > 61 else bytes(damaged)

    def noise(self) -> bytes:
        """Return bytes that were never a frame."""
        return self._chance.randbytes(self._chance.choice((1, 4, 13, 100, 5_000)))

    def _damage(self, data: bytearray, keep: int) -> bytearray:
        if len(data) <= keep:
            return data
        at = self._chance.randrange(keep, len(data))
        match self._chance.randrange(7):
            case 0:
                data[at] ^= 1 << self._chance.randrange(8)
            case 1:
                data[at] = self._chance.randrange(256)
            case 2:
                del data[at:]
            case 3:
                data[at:at] = self._chance.randbytes(self._chance.randint(1, 20))
            case 4:
                layout = self._chance.choice((">i", ">h", ">q"))
                size = struct.calcsize(layout)
                value = self._chance.choice(EXTREMES) % (1 << 8 * size)
                data[at : at + size] = value.to_bytes(size, "big")
            case 5:
                varint = self._chance.choice(VARINTS)
                data[at : at + len(varint)] = varint
            case _:
                other = self._chance.choice(self._corpus)
                data[at:] = other[self._chance.randrange(len(other)) :]
        return data
