"""A list in a response whose items are made while the response is encoded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar

R = TypeVar("R")


class LazyList(list[R]):
    """One item for each of `asked`, made when the encoder comes to it, and not kept.

    So a large response is never there as objects, which take many times the memory of its bytes.
    Only `step_encoder` should see one: it has a length and can be iterated, nothing else.
    """

    __slots__ = ("_asked", "_make")

    def __init__(self, make: Callable[[Any], R], asked: Collection[Any]) -> None:
        super().__init__()
        self._make = make
        self._asked = asked

    def __len__(self) -> int:
        return len(self._asked)

    def __iter__(self) -> Iterator[R]:
        return map(self._make, self._asked)
