"""Which partition of __consumer_offsets a group belongs to."""

from __future__ import annotations

from functools import lru_cache

_MOST_NEGATIVE = -(1 << 31)


_LONGEST_REMEMBERED = 256  # characters: what strangers send must not fill the memory


def partition_of(group_id: str, num_partitions: int) -> int:
    """Kafka's choice: the hash that Java gives a string, without its sign, by the partitions."""
    if len(group_id) <= _LONGEST_REMEMBERED:
        return _remembered(group_id, num_partitions)
    return _partition_of(group_id, num_partitions)


def _partition_of(group_id: str, num_partitions: int) -> int:
    number = java_hash(group_id)
    return 0 if number == _MOST_NEGATIVE else abs(number) % num_partitions


_remembered = lru_cache(maxsize=4096)(_partition_of)


def java_hash(text: str) -> int:
    """String.hashCode of Java, over the units of UTF-16."""
    units = text.encode("utf-16-be", "surrogatepass")
    number = 0
    for position in range(0, len(units), 2):
        number = (number * 31 + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return number - (1 << 32) if number >= 1 << 31 else number
