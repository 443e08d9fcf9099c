"""A whole load target in one file: `lines:PATH`, a directory with a JSON file for each batch.

The tests register it with one line. Real targets look the same, only longer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.targets.table_writer import Added, Batch, TableWriter
from ottla_spark.loads.targets.target import Target, UnreadableTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession
    from pyspark.sql.types import StructType

    from ottla_spark.loads.options.partition_by import PartitionBy


class LinesTarget(Target):
    """Directories of JSON lines."""

    scheme: ClassVar[str] = "lines"
    form: ClassVar[str] = "lines:PATH"

    def open(
        self,
        spark: SparkSession,
        location: str,
        writer: str,
        *,
        catalog: Mapping[str, str],
        compacted: bool = False,
    ) -> LinesTableWriter:
        """Open the table in a directory."""
        return LinesTableWriter(location)

    def read(self, spark: SparkSession, location: str, catalog: Mapping[str, str]) -> DataFrame:
        """Return the rows of all files."""
        if not Path(location).is_dir():
            raise UnreadableTable(f"{location} does not exist")
        return spark.read.json(location)


TARGET = LinesTarget()


class LinesTableWriter(TableWriter):
    """Writes a file for each batch. Renaming it is the commit, and its name is the number."""

    def __init__(self, path: str) -> None:
        self.data_directory = path

    def prepare(
        self, schema: StructType, partitions: Sequence[PartitionBy], *, widen: bool
    ) -> None:
        """Create the directory."""
        if partitions:
            raise LoadUsageError("--partition-by does not work with lines:")
        Path(self.data_directory).mkdir(parents=True, exist_ok=True)

    def last_batch(self, query_id: str) -> int | None:
        """Return the highest number of a file of this query."""
        files = Path(self.data_directory).glob(f"{query_id}.*.json")
        return max((int(file.name.split(".")[1]) for file in files), default=None)

    def add(
        self, batch: Batch, rows: DataFrame, measures: Observation, most_rows_a_file: int
    ) -> Added:
        """Write the rows to a hidden file and rename it."""
        text = "".join(json.dumps(row.asDict(), default=str) + "\n" for row in rows.collect())
        hidden = Path(self.data_directory, "_new")
        hidden.write_text(text)
        hidden.rename(Path(self.data_directory, f"{batch.query_id}.{batch.number}.json"))
        return Added(1, len(text), measures.get)
