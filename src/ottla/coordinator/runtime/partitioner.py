"""Which partition of an internal topic a group id or a transactional id belongs to."""

from __future__ import annotations

from functools import lru_cache

_MOST_NEGATIVE = -(1 << 31)
_LONGEST_CACHED = 256  # characters: long ids from clients must not fill the memory


def partition_of(key: str, num_partitions: int) -> int:
    """Return Kafka's choice: Java's hash code of the id, without its sign, modulo partitions."""
    if len(key) <= _LONGEST_CACHED:
        return _cached_partition_of(key, num_partitions)
    return _partition_of(key, num_partitions)


def _partition_of(key: str, num_partitions: int) -> int:
    number = java_hash(key)
    return 0 if number == _MOST_NEGATIVE else abs(number) % num_partitions


_cached_partition_of = lru_cache(maxsize=4096)(_partition_of)


def java_hash(text: str) -> int:
    """Return what Java's String.hashCode returns: a hash over the units of UTF-16."""
    units = text.encode("utf-16-be", "surrogatepass")
    number = 0
    for position in range(0, len(units), 2):
        number = (number * 31 + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return number - (1 << 32) if number >= 1 << 31 else number
