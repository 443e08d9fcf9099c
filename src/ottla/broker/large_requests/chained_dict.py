"""A dict of very many entries, of which no part is large.

When a dict grows, all its entries move at once: with a million of them that holds the loop for
20 ms. So a new dict is begun when the last one is full. A key is looked for in each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

MOST_ENTRIES: Final = 40_000
"""How many entries a dict has at most: they move in less than a millisecond."""


class ChainedDict(list[dict[K, V]]):
    """Dicts, in the order in which they were filled. No key is in two of them.

    It is a list, so `discard_in_steps` frees it.
    """

    __slots__ = ()

    def find(self, key: K) -> V | None:
        """Return the value of a key, None if there is none."""
        for entries in self:
            if key in entries:
                return entries[key]
        return None

    def put(self, key: K, value: V) -> None:
        """Set the value of a key. One that is there keeps its place."""
        for entries in self:
            if key in entries:
                entries[key] = value
                return
        if not self or len(self[-1]) >= MOST_ENTRIES:
            self.append({})
        self[-1][key] = value

    def entries(self) -> Iterator[tuple[K, V]]:
        """Return all keys and values, in the order in which the keys came."""
        return chain.from_iterable(each.items() for each in self)

    def keys(self) -> Iterator[K]:
        """Return all keys in the order in which they came."""
        return chain.from_iterable(self)

    def values(self) -> Iterator[V]:
        """Return all values in the order in which the keys came."""
        return chain.from_iterable(each.values() for each in self)
