"""Which partition a message goes to: by the hash of its key, or one for a while (KIP-480).

The hash is the murmur2 of Kafka's Java client, so that keys land where Java producers put
them.
"""

from __future__ import annotations

import random
from functools import lru_cache

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


@lru_cache(maxsize=4096)
def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash, unsigned."""
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
    """Chooses among `count` partitions; `switch` ends the stay at the present one."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._sticky = random.randrange(count)

    def partition_for(self, key: bytes | None) -> int:
        """The key's partition, or for no key the one chosen for the time being."""
        if key is None:
            return self._sticky
        return (murmur2(key) & 0x7FFFFFFF) % self.count

    def switch(self) -> None:
        """Choose another partition for messages without a key, if there is another."""
        if self.count > 1:
            self._sticky = (self._sticky + random.randrange(1, self.count)) % self.count
