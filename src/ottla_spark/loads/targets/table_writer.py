"""What a load asks of a table.

Spark runs a batch again, with the same number and the same rows, when it does not know that the
batch ended. So exactly once rests on one thing: a table adds the rows of a batch together with
the batch's number, in one atomic commit, and is asked for the number first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation
    from pyspark.sql.types import StructType

    from ottla_spark.loads.options.partition_by import PartitionBy

DELETED = "_ottla_deleted"
RECORDS = "records"  # measures of a batch: what went by, and what of it is not for the table
MISFITS = "misfits"


@dataclass(frozen=True)
class Batch:
    """A micro-batch: `query_id` is that of the checkpoint, so numbers of others do not matter."""

    query_id: str
    number: int


class Added(NamedTuple):
    """What a commit put into a table, and what was measured while the rows went by."""

    files: int
    size: int
    measured: Mapping[str, object]


class Table(Protocol):
    """A table under a load; only one process at a time calls it."""

    data_directory: str
    """Where the table lies; empty while that is not known."""

    def prepare(
        self, schema: StructType, partitions: Sequence[PartitionBy], *, widen: bool
    ) -> None:
        """Make the table, or see that the one there takes such rows; LoadUsageError if not.

        With `widen`, columns that it does not have are added.
        """

    def widen(self, schema: StructType) -> None:
        """Add the columns, and fields of columns, that the table does not have yet."""

    def last_batch(self, query_id: str) -> int | None:
        """The highest batch of this checkpoint that the table holds."""

    def add(
        self, batch: Batch, rows: DataFrame, measures: Observation, most_rows_a_file: int
    ) -> Added:
        """Add the rows and the batch's number in one commit."""

    def upsert(
        self, batch: Batch, rows: DataFrame, measures: Observation, key: Sequence[str]
    ) -> Added:
        """Replace the rows of each key by the one given, or remove them where DELETED is true."""

    def clean(self, batch: Batch) -> int:
        """Remove what attempts at this batch, or a later one, that were killed left behind."""

    def compact(self, target_file_size: int) -> int:
        """Turn small files into large ones without changing what readers see; how many went."""
