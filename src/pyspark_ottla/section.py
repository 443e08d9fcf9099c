"""Some of what a fetch brought of one partition."""

from __future__ import annotations

from typing import NamedTuple

from pyspark_ottla.transactions import AbortedFilter


class Section(NamedTuple):
    """Bytes of batches, of which the records with offsets in [low, high) are wanted.

    `aborted` goes through all the sections that one response has of a partition.
    """

    topic: str
    partition: int
    records: memoryview
    low: int
    high: int
    aborted: AbortedFilter
