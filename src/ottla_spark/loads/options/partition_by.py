"""Partitioning of tables: by a column, or by the year, month, day or hour of one.

The values are those of Iceberg's transforms in the shape that paths show: 2026, 2026-01,
2026-01-31 (a DATE), 2026-01-31-12, all UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla_spark.loads.errors import LoadUsageError

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

_FORM = re.compile(r"(?:(year|month|day|hour)\s*\(\s*)?([^()\s,]+)\s*(\)?)")
_PATTERNS = {"year": "yyyy", "month": "yyyy-MM", "hour": "yyyy-MM-dd-HH"}
IDENTITY = "identity"


@dataclass(frozen=True)
class PartitionBy:
    """One partition column: `transform` of `source`."""

    source: str
    transform: str = IDENTITY

    @property
    def is_time(self) -> bool:
        """Whether it is made from a point in time."""
        return self.transform != IDENTITY

    @property
    def column(self) -> str:
        """Its name in paths, and in Parquet and Delta tables."""
        return f"{self.source}_{self.transform}" if self.is_time else self.source

    @property
    def column_in_iceberg(self) -> str:
        """The name of the partition field of an Iceberg table, which no column may have."""
        return self.column if self.is_time else f"{self.source}_{IDENTITY}"

    def __str__(self) -> str:
        return f"{self.transform}({self.source})" if self.is_time else self.source


def parse_partition_by(texts: Iterable[str]) -> tuple[PartitionBy, ...]:
    """What --partition-by says, possibly repeated, possibly with commas."""
    parts = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    found = tuple(_parse(part) for part in parts)
    if len({each.column for each in found}) != len(found):
        raise LoadUsageError(f"--partition-by has a column twice: {', '.join(map(str, found))}")
    return found


def _parse(text: str) -> PartitionBy:
    form = _FORM.fullmatch(text)
    if form is None or bool(form[1]) != bool(form[3]):
        raise LoadUsageError(
            f"--partition-by {text!r} should be a column, or year, month, day or hour of one:"
            " day(timestamp)"
        )
    return PartitionBy(form[2], form[1] or IDENTITY)


def partition_value(part: PartitionBy, source: Column, kind: DataType) -> Column:
    """The partition column made from `source`, whose type is `kind`."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import DateType, StringType, TimestampNTZType, TimestampType

    if not part.is_time:
        return source
    if isinstance(kind, StringType):
        source = F.try_to_timestamp(source)
    elif not isinstance(kind, DateType | TimestampType | TimestampNTZType):
        raise LoadUsageError(
            f"--partition-by {part}: {part.source} is {kind.simpleString()}, and {part.transform}()"
            " needs a timestamp, a date or a string that holds one"
        )
    if part.transform == "day":
        return F.to_date(source)
    return F.date_format(source, _PATTERNS[part.transform])


def partition_type(part: PartitionBy) -> DataType:
    """The type of a partition column that is made from a time."""
    from pyspark.sql.types import DateType, StringType

    return DateType() if part.transform == "day" else StringType()
