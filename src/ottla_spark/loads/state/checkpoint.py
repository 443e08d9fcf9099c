"""Reads Spark's checkpoint of a streaming query.

Spark keeps the id of the query (`metadata`), the end offsets of each batch, written before the
batch runs (`offsets/N`), and which batches are done (`commits/N`).
"""

from __future__ import annotations

import json

from ottla_spark.loads.state.storage import Storage


class Checkpoint:
    """The checkpoint of one query in the directory `path`, which need not exist yet."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self.path = path

    def query_id(self) -> str | None:
        """Return the id that Spark gave the checkpoint; None before the first run."""
        path = f"{self.path}/metadata"
        if not self._storage.exists(path):
            return None
        return str(json.loads(self._storage.read_text(path))["id"])

    def planned_batch(self) -> int | None:
        """Return the highest batch that Spark has planned; None before the first."""
        return self._last("offsets")

    def finished_batch(self) -> int | None:
        """Return the highest batch that is done: its rows were in the table; None before one."""
        return self._last("commits")

    def remove_half_planned(self) -> None:
        """Remove the temporary file of a first batch whose planning was killed.

        Spark writes the plan to a temporary file and renames it. Later it ignores such files, but
        it never accepts a checkpoint that has nothing else.
        """
        if self.planned_batch() is not None:
            return
        for name in self._storage.children(f"{self.path}/offsets"):
            self._storage.remove(f"{self.path}/offsets/{name}")

    def forget_plan(self, batch: int) -> None:
        """Forget the plan of the last batch, which is not finished, so that Spark plans it again.

        The table must not have the batch.
        """
        assert batch == self.planned_batch()
        assert batch != self.finished_batch()
        self._storage.remove(f"{self.path}/offsets/{batch}")

    def positions(self) -> dict[tuple[str, str], int]:
        """Return the next offset of each topic and partition; empty before the first batch."""
        last = self.finished_batch()
        return {} if last is None else (self._offsets(last) or {})

    def planned_records(self, batch: int) -> int | None:
        """Return how many offsets a planned batch covers; None if Spark's files do not tell."""
        ends = self._offsets(batch)
        starts = self._offsets(batch - 1) if batch else {}
        if ends is None or starts is None:
            return None
        if not starts:
            return None  # Spark does not write down where the first batch starts
        return sum(end - starts.get(place, end) for place, end in ends.items())

    def _last(self, log: str) -> int | None:
        names = self._storage.children(f"{self.path}/{log}")
        return max((int(name) for name in names if name.isdigit()), default=None)

    def _offsets(self, batch: int) -> dict[tuple[str, str], int] | None:
        path = f"{self.path}/offsets/{batch}"
        if not self._storage.exists(path):
            return None
        try:
            content = json.loads(self._storage.read_text(path).splitlines()[-1])
            return {
                (topic, partition): int(offset)
                for topic, partitions in content.items()
                for partition, offset in partitions.items()
            }
        except (ValueError, AttributeError, IndexError, TypeError):
            return None
