"""What Spark keeps of a query, in its own files.

Its identity (`metadata`), where each batch ends, written before it runs (`offsets/N`), and
which batches are done (`commits/N`).
"""

from __future__ import annotations

import json

from ottla_spark.loads.state.storage import Storage


class Checkpoint:
    """The checkpoint of one query at `path`, which need not exist yet."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self.path = path

    def query_id(self) -> str | None:
        """The identity that Spark gave the checkpoint, None before the first run."""
        path = f"{self.path}/metadata"
        if not self._storage.exists(path):
            return None
        return str(json.loads(self._storage.read_text(path))["id"])

    def planned_batch(self) -> int | None:
        """The highest batch that Spark has planned, None before the first."""
        return self._last("offsets")

    def remove_half_planned(self) -> None:
        """Remove what an end in the middle of planning the first batch left.

        Spark writes the plan beside its place and renames it. It passes over such files later,
        but refuses a checkpoint that has nothing else, for good.
        """
        if self.planned_batch() is not None:
            return
        for name in self._storage.children(f"{self.path}/offsets"):
            self._storage.remove(f"{self.path}/offsets/{name}")

    def positions(self) -> dict[tuple[str, str], int]:
        """Where the next batch begins, by topic and partition; empty before the first batch."""
        last = self._last("commits")
        return {} if last is None else (self._offsets(last) or {})

    def planned_records(self, batch: int) -> int | None:
        """How many offsets a batch covers, by Spark's log of offsets; None if it does not say."""
        ends = self._offsets(batch)
        starts = self._offsets(batch - 1) if batch else {}
        if ends is None or starts is None:
            return None
        if not starts:
            return None  # where the first batch began is not written down
        return sum(end - starts.get(place, end) for place, end in ends.items())

    def _last(self, log: str) -> int | None:
        names = self._storage.children(f"{self.path}/{log}")
        return max((int(name) for name in names if name.isdigit()), default=None)

    def _offsets(self, batch: int) -> dict[tuple[str, str], int] | None:
        path = f"{self.path}/offsets/{batch}"
        if not self._storage.exists(path):
            return None
        try:
            told = json.loads(self._storage.read_text(path).splitlines()[-1])
            return {
                (topic, partition): int(offset)
                for topic, partitions in told.items()
                for partition, offset in partitions.items()
            }
        except (ValueError, AttributeError, IndexError, TypeError):
            return None
