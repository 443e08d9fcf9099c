"""What a fetch brought of one partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyspark_ottla.transactions import Aborted


class Section(NamedTuple):
    """Bytes of batches, of which the records with offsets in [low, high) are wanted."""

    topic: str
    partition: int
    records: memoryview
    low: int
    high: int
    aborted: Sequence[Aborted]
