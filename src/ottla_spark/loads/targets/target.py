"""The interface of a load target: one kind of table that loads and pipelines write and read.

Everything that is particular to one kind stands in one file beside this one. To add a kind:

1. Write `targets/<name>.py` with a subclass of `Target`, a subclass of `TableWriter`, and the
   instance `TARGET = NameTarget()`. Import its library inside functions, not at the top.
2. Add one line to `TARGETS` in `registry.py`.

A minimal target has `scheme`, `form`, `open` and `read`. The other members have defaults.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import DataType

    from ottla_spark.loads.targets.table_writer import TableWriter


class UnreadableTable(Exception):
    """The table does not exist or cannot be read; the message says why."""


class Glance(NamedTuple):
    """A table without Spark: its directory (empty if there is no table), and its last batch.

    `last_batch` takes the id of a checkpoint, as that of `TableWriter` does. `has_leftovers` is
    True if readers of the table see files of a killed run, which the next run removes.
    """

    data_directory: str
    last_batch: Callable[[str], int | None]
    has_leftovers: bool = False


class Target(ABC):
    """One kind of table. It has no state; an open table is a `TableWriter`."""

    scheme: ClassVar[str]
    """The word before the colon of an address, such as `parquet`."""
    form: ClassVar[str]
    """What an address looks like, for messages: `parquet:PATH`."""
    is_directory: ClassVar[bool] = True
    """True if the location is the directory of the table."""
    takes_several_topics: ClassVar[bool] = True
    """True if several loads, each of its own topic, may write to one table."""
    stores_partition_columns: ClassVar[bool] = True
    """True if `day(ts)` is a column of its own; False if the table derives it from `ts`."""

    def parse_location(self, text: str, resolve: Callable[[str], str]) -> str | None:
        """Return the location that the text after the colon means; None if it means none.

        `resolve` makes a relative path absolute.
        """
        return resolve(text)

    def table_name(self, location: str) -> str:
        """Return the last part of a location, for names that people read."""
        return location.rstrip("/").rpartition("/")[2]

    def catalog_name(self, location: str) -> str | None:
        """Return the name of the catalog that a location is in; None without catalogs."""
        return None

    def why_not_at(self, location: str) -> str:
        """Return why a table cannot be at this location; empty if it can."""
        return ""

    def why_no_catalog(self, location: str, catalog: Mapping[str, str]) -> str:
        """Return why the catalog of a location cannot be opened; empty if it can."""
        return ""

    def why_no_upsert(self, key_columns: int) -> str:
        """Return why a key of this many columns cannot replace rows; empty if it can."""
        return f"a {self.scheme}: table cannot replace rows"

    def why_no_compaction(self) -> str:
        """Return why the table's files cannot be compacted; empty if they can."""
        return f"Ottla cannot compact a {self.scheme}: table"

    def column_type(self, kind: DataType) -> DataType:
        """Return the type that a column of this Spark type has in the table."""
        return kind

    @abstractmethod
    def open(
        self,
        spark: SparkSession,
        location: str,
        writer: str,
        *,
        catalog: Mapping[str, str],
        compacted: bool = False,
    ) -> TableWriter:
        """Open the table at a location, which need not exist yet.

        `writer` names who writes: the topic of a load, the group of a pipeline's sink. `catalog`
        are properties of the catalog. `compacted` is true if the table will be compacted.
        """

    def glance(self, location: str, writer: str, *, catalog: Mapping[str, str]) -> Glance | None:
        """Return what can be asked of a table before Spark starts; None if nothing can."""
        return None

    @abstractmethod
    def read(self, spark: SparkSession, location: str, catalog: Mapping[str, str]) -> DataFrame:
        """Return the rows that the table has now; raise UnreadableTable if that is impossible."""

    def stream_writer(
        self, rows: DataFrame, location: str, partition_by: Sequence[str]
    ) -> DataStreamWriter | None:
        """Return Spark's own exactly-once sink for this kind of table, for pipelines.

        None if there is none: the pipeline then writes batch by batch through `open`.
        """
        return None
