"""Hashes of many keys at once, of 128 bits (numpy).

Multilinear hashing: a key is a string of 32-bit numbers, its length among them. Each is multiplied
by a secret number of 64 bits, and the upper 32 bits of the sum are a quarter of the hash. It is
strongly universal: without the secret of a clean, only luck finds two keys with one hash, one in
2**128 (Lemire and Kaser, Strongly universal string hashing is fast). Keys of more than
256 bytes are hashed one by one by BLAKE2b with the same secret.
"""

from __future__ import annotations

from hashlib import blake2b, shake_128
from typing import Any, Final

import numpy as np

from ottla.log.cleaner.record_arrays import Array
from ottla.ports import Buffer

_LONGEST: Final = 256
_PARTS: Final = 4
_NUMBERS: Final = _LONGEST // 4 + 2
_U: Any = np.uint64
_LOW: Final = _U(0xFFFFFFFF)
_HIGH: Final = _U(0xFFFFFFFF00000000)
_HALF: Final = _U(32)
_MASKS: Final = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
"""By how many bytes of a word belong to the key."""


class KeyHash:
    """A hash with a secret."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        secret = shake_128(seed).digest(8 * _PARTS * _NUMBERS)
        self._secret = np.frombuffer(secret, "<u8").astype(np.uint64).reshape(_PARTS, _NUMBERS)

    def of(self, data: Buffer, starts: Array, lengths: Array) -> tuple[Array, Array]:
        """Return both halves of the hashes of keys. The first ones are never 0.

        `data` ends with PADDING.
        """
        secret = self._secret
        sizes = lengths.astype(np.uint64)
        sums = [secret[part, 0] + sizes * secret[part, 1] for part in range(_PARTS)]
        short = lengths if len(lengths) == 0 or lengths.max() <= _LONGEST else lengths.clip(0, 256)
        words = np.ndarray((len(data) - 7,), "V8", buffer=data, strides=(1,))
        longest = int(short.max(initial=0))
        for number in range((longest + 7) // 8):
            rest = short - 8 * number
            if number == 0 or rest.min() > 0:
                self._add(sums, words, starts + 8 * number, rest, number)
            else:
                some = np.flatnonzero(rest > 0)
                added = [part[some] for part in sums]
                self._add(added, words, starts[some] + 8 * number, rest[some], number)
                for part, new in zip(sums, added, strict=True):
                    part[some] = new
        high = (sums[0] & _HIGH) | (sums[1] >> _HALF)
        low = (sums[2] & _HIGH) | (sums[3] >> _HALF)
        if longest == _LONGEST:
            self._hash_long(data, starts, lengths, high, low)
        high[high == 0] = _U(1)  # 0 is a free slot
        return high, low

    def _add(self, sums: list[Array], words: Array, at: Array, rest: Array, number: int) -> None:
        """Add the word at these positions, of which `rest` bytes belong to the key."""
        word = words[at].view("<u8").astype(np.uint64, copy=False)
        if rest.min() < 8:
            word = word & _MASKS[np.minimum(rest, 8)]
        low, high = word & _LOW, word >> _HALF
        secret = self._secret
        for part, total in enumerate(sums):
            total += low * secret[part, 2 * number + 2]  # noqa: PLW2901 (the array is changed)
            if 2 * number + 3 < _NUMBERS:
                total += high * secret[part, 2 * number + 3]  # noqa: PLW2901

    def _hash_long(
        self, data: Buffer, starts: Array, lengths: Array, high: Array, low: Array
    ) -> None:
        for number in np.flatnonzero(lengths > _LONGEST).tolist():
            start = int(starts[number])
            key = bytes(data[start : start + int(lengths[number])])
            digest = blake2b(key, digest_size=16, key=self._seed).digest()
            high[number], low[number] = np.frombuffer(digest, "<u8")
