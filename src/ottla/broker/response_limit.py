"""Bounds a response about many groups in bytes, before it is built (ADR 18).

A request names a thousand groups in a few kilobytes, and each may have much to tell. Every group is
described as a whole or not at all: once the response is large, the rest is refused, and the client
asks for it in another request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps, in_steps

T = TypeVar("T")

MOST_BYTES: Final = 16 * 1024 * 1024
"""When a response has more than this, further groups get an error."""


class ResponseLimit:
    """Counts the bytes of a response, roughly."""

    __slots__ = ("_bytes",)

    def __init__(self) -> None:
        self._bytes = 0

    def check(self) -> None:
        """Raise POLICY_VIOLATION if the response is large already."""
        if self._bytes > MOST_BYTES:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"The response has {MOST_BYTES >> 20} MiB already: ask for fewer groups at a time.",
            )

    def add(self, size_of: Callable[[T], int], items: Iterable[T]) -> Steps[None]:
        """Count items that will be in the response."""
        self._bytes += sum((yield from in_steps(size_of, items)))
