"""Chooses partitions for messages: by the hash of the key, or a sticky partition (KIP-480).

The hash is murmur2 as in Kafka's Java client, so a key goes to the same partition as with a
Java producer.
"""

from __future__ import annotations

import random
from functools import lru_cache

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


@lru_cache(maxsize=4096)
def murmur2(data: bytes) -> int:
    """Return the 32-bit murmur2 hash, unsigned."""
    length = len(data)
    whole = length & ~3
    h = _SEED ^ length
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


class Partitioner:
    """Chooses one of `count` partitions. `switch` changes the sticky partition."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._sticky = random.randrange(count)

    def partition_for(self, key: bytes | None) -> int:
        """Return the partition of the key, or the sticky partition if there is no key."""
        if key is None:
            return self._sticky
        return (murmur2(key) & 0x7FFFFFFF) % self.count

    def switch(self) -> None:
        """Choose another sticky partition for messages without a key, if there is one."""
        if self.count > 1:
            self._sticky = (self._sticky + random.randrange(1, self.count)) % self.count
