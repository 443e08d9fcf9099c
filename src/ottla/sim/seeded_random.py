"""Seeded chance: one generator for the node, others for everything around it.

Every part of a simulation that draws numbers has a generator of its own, derived from the
seed and the part's name, so that a change in one part leaves the draws of the others alone.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from random import Random as Generator

__all__ = ("Generator", "SeededRandom", "generator")


def generator(seed: int, part: str) -> Generator:
    """Return the generator of one part of the simulation with this seed."""
    return Generator(f"{seed}/{part}")


class SeededRandom:
    """The Random port."""

    __slots__ = ("_generator",)

    def __init__(self, source: Generator) -> None:
        self._generator = source

    def uuid(self) -> bytes:
        while True:
            uuid = self._generator.randbytes(16)
            if not urlsafe_b64encode(uuid).startswith(b"-"):
                return uuid

    def below(self, limit: int) -> int:
        return self._generator.randrange(limit)
