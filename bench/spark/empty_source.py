"""A minimal Python streaming source: an offset that counts, and one row per micro-batch.

Its micro-batches show the cost of Spark itself. The difference to `ottla` is the cost of `ottla`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType


class EmptyReader(DataSourceStreamReader):
    """Always has one more row."""

    def __init__(self) -> None:
        self._latest = 0

    def initialOffset(self) -> dict[str, int]:
        return {"rows": 0}

    def latestOffset(self, start: object = None, limit: object = None) -> dict[str, int]:
        self._latest += 1
        return {"rows": self._latest}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": pa.array([b"x"], pa.binary())})


class EmptySource(DataSource):
    """`format("empty")`."""

    @classmethod
    def name(cls) -> str:
        return "empty"

    def schema(self) -> str:
        return "value BINARY"

    def streamReader(self, schema: StructType) -> EmptyReader:
        return EmptyReader()
