"""The option --partition-by: a column, or the year, month, day or hour of one.

The values are those of Iceberg's transforms, written as in paths: 2026, 2026-01, 2026-01-31 (a
DATE), 2026-01-31-12. All are UTC.
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
    """One partition column: `transform` applied to the column `source`."""

    source: str
    transform: str = IDENTITY

    @property
    def is_time(self) -> bool:
        """True if it is the year, month, day or hour of a column."""
        return self.transform != IDENTITY

    @property
    def column(self) -> str:
        """Its name in paths and in tables that store it."""
        return f"{self.source}_{self.transform}" if self.is_time else self.source

    def __str__(self) -> str:
        return f"{self.transform}({self.source})" if self.is_time else self.source


def parse_partition_by(texts: Iterable[str]) -> tuple[PartitionBy, ...]:
    """Return the columns that --partition-by names. It may be repeated or have commas."""
    parts = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    found = tuple(_parse(part) for part in parts)
    if len({each.column for each in found}) != len(found):
        raise LoadUsageError(f"--partition-by names a column twice: {', '.join(map(str, found))}")
    return found


def _parse(text: str) -> PartitionBy:
    form = _FORM.fullmatch(text)
    if form is None or bool(form[1]) != bool(form[3]):
        raise LoadUsageError(
            f"--partition-by {text!r} should be a column, or the year, month, day or hour of one,"
            " such as day(timestamp)"
        )
    return PartitionBy(form[2], form[1] or IDENTITY)


def partition_value(part: PartitionBy, source: Column, kind: DataType) -> Column:
    """Return the partition column for `source`, whose type is `kind`."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import DateType, StringType, TimestampNTZType, TimestampType

    if not part.is_time:
        return source
    if isinstance(kind, StringType):
        source = F.try_to_timestamp(source)
    elif not isinstance(kind, DateType | TimestampType | TimestampNTZType):
        raise LoadUsageError(
            f"--partition-by {part}: {part.source} is {kind.simpleString()}, but {part.transform}()"
            " needs a timestamp, a date or a string with one of them"
        )
    if part.transform == "day":
        return F.to_date(source)
    return F.date_format(source, _PATTERNS[part.transform])


def partition_type(part: PartitionBy) -> DataType:
    """Return the type of a partition column with the year, month, day or hour of another."""
    from pyspark.sql.types import DateType, StringType

    return DateType() if part.transform == "day" else StringType()
