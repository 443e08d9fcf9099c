"""Values that cannot be partition values, and the reasons to tell people.

A text is a part of the name of a directory while files are written, in most tables for ever. A time
must be one of Python's, because Python commits to Delta and Iceberg. One record with such a value
would stop the load for good, so it goes to the dead letters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from ottla_spark.loads.options.partition_by import PartitionBy
from ottla_spark.loads.targets.arrow_files import NULL_PARTITION

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

CANNOT_BE: Final = "a partition value cannot be"
_LONGEST_NAME: Final = 255
"""The bytes that the name of a directory may have, in nearly all file systems."""
_OWN_NAMES: Final = 20
"""The bytes of names that a target may use in place of the column's."""
_ESCAPED: Final = r"""[\x01-\x1f\x7f"#%'*/:=?\\{\[\]^]"""
"""What Spark writes as three characters in the name of a directory."""


def unfit_partition_values(
    part: PartitionBy, source: Column, kind: DataType, *, stored: bool
) -> Iterator[tuple[Column, str]]:
    """Yield conditions under which `source` cannot be a partition value, and the reasons.

    `stored`: the table stores the values as text, and cannot tell some of them from null.
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if part.is_time and isinstance(kind, T.StringType):
        source, kind = F.try_to_timestamp(source), T.TimestampType()
    if isinstance(kind, T.DateType | T.TimestampType | T.TimestampNTZType):
        yield ~F.year(source).between(1, 9999), f"{CANNOT_BE} a time outside the years 1 to 9999"
    elif isinstance(kind, T.FloatType | T.DoubleType):
        if not stored:
            yield F.isnan(source), f"{CANNOT_BE} NaN"
    elif isinstance(kind, T.StringType):
        most = _LONGEST_NAME - 1 - max(_OWN_NAMES, len(quote(part.column)))
        length = F.octet_length(source) + 2 * F.regexp_count(source, F.lit(_ESCAPED))
        yield length > most, f"{CANNOT_BE} longer than {most} bytes in the name of a directory"
        yield F.contains(source, F.lit("\0")), f"{CANNOT_BE} a text with a null character"
        if stored:
            yield source == "", f"{CANNOT_BE} an empty string"
            yield source == NULL_PARTITION, f"{CANNOT_BE} {NULL_PARTITION}"
