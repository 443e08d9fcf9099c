"""The interface of an open table: what a load and a pipeline's sink call.

Spark repeats a batch, with the same number and the same rows, if it does not know whether the
batch ended. Exactly-once therefore needs one thing of a table: it stores the rows of a batch and
the batch's number in one atomic commit, and it can be asked for the last number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader
    from pyspark.sql.types import StructType

    from ottla_spark.loads.options.load_options import LoadOptions
    from ottla_spark.loads.options.partition_by import PartitionBy

DELETED = "_ottla_deleted"
"""The column of upserted rows that is true where the key is to be deleted."""
RECORDS = "records"
"""The measure with the number of records in a batch."""
MISFITS = "misfits"
"""The measure with the number of records that do not go into the table."""


@dataclass(frozen=True)
class Batch:
    """A micro-batch. `query_id` is the id of its checkpoint, so each load counts for itself."""

    query_id: str
    number: int


class Added(NamedTuple):
    """What a commit added to a table, and what Spark measured while it wrote the rows."""

    files: int
    size: int
    measured: Mapping[str, object]


class WorkerFiles(Protocol):
    """Files that Spark's Python workers write themselves, instead of Spark's own writer."""

    def reader(self, spark: SparkSession) -> DataStreamReader:
        """Return a stream reader whose rows are the files that the workers wrote."""

    def add(self, batch: Batch, files: DataFrame) -> Added:
        """Run a batch and add its files to the table in one commit."""

    def set_rows_per_file(self, rows: int) -> None:
        """Set how many rows a file of the next batches should have; 0 if that is not known."""


class TableWriter(ABC):
    """Writes batches into one table. Only one process at a time uses it."""

    data_directory: str
    """The directory of the table; empty until it is known."""

    @abstractmethod
    def prepare(
        self, schema: StructType, partitions: Sequence[PartitionBy], *, widen: bool
    ) -> None:
        """Create the table, or raise LoadUsageError if the existing one cannot take such rows.

        With `widen`, add the columns that the existing table does not have.
        """

    @abstractmethod
    def last_batch(self, query_id: str) -> int | None:
        """Return the number of the last batch of this checkpoint in the table.

        None if there is none, or no table. Raise LoadUsageError if another checkpoint loaded the
        same topic into it, and RolledBack if the table no longer has the rows of that batch.
        """

    @abstractmethod
    def add(
        self, batch: Batch, rows: DataFrame, measures: Observation, most_rows_a_file: int
    ) -> Added:
        """Add the rows and the batch's number in one commit."""

    def widen(self, schema: StructType) -> None:
        """Add the columns, and the fields of columns, that the table does not have yet."""
        raise NotImplementedError

    def upsert(
        self, batch: Batch, rows: DataFrame, measures: Observation, key: Sequence[str]
    ) -> Added:
        """Replace the row of each key, or delete it where DELETED is true, in one commit.

        Called only if the target's `why_no_upsert` allows it.
        """
        raise NotImplementedError

    def drop_if_new(self) -> bool:
        """Drop the table if `prepare` has just created it; return whether it was dropped.

        Only a target whose directory is not known before the table exists needs this.
        """
        return False

    def missing_files(self) -> list[str]:
        """Return the files that the table should have and that are gone."""
        return []

    def other_writers(self) -> list[str]:
        """Return the other topics, and sinks of pipelines, that wrote to the table."""
        return []

    def reset(self) -> None:
        """Delete all rows, and forget which checkpoint loaded them; do nothing without a table.

        Called only without other writers. An interrupted reset leaves a table that refuses other
        checkpoints, or that is empty.
        """
        raise NotImplementedError

    def clean(self, batch: Batch) -> int:
        """Remove the files that killed attempts at this or a later batch left; return how many."""
        return 0

    def compact(self, target_file_size: int) -> int:
        """Merge small files into large ones; return how many files were replaced.

        Readers see the same rows before and after. Called only if the target's
        `why_no_compaction` allows it.
        """
        raise NotImplementedError

    def worker_files(self, options: LoadOptions) -> WorkerFiles | None:
        """Return how Python workers write the files of this load; None if Spark writes them."""
        return None
