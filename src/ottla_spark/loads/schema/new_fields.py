"""Finds fields that records have and the schema does not."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ottla_spark.loads.formats.format import REASON, UNKNOWN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla_spark.loads.formats.format import Format, Learned

MOST_NAMES = 100
MOST_VALUES = 500


def find_new_fields(
    decoded: DataFrame, form: Format, taken: Collection[str]
) -> tuple[list[str], Learned] | None:
    """Return what is new in these records, and the fields it gives; None if nothing is new.

    `taken` are names, in lower case, that fields of values cannot have.
    """
    from pyspark.sql import functions as F

    new = decoded.where(F.col(REASON).isNull() & F.col("value").isNotNull() & (F.size(UNKNOWN) > 0))
    some = new.select("value", UNKNOWN).limit(MOST_VALUES).collect()
    names = sorted({name for row in some for name in row[1]})[:MOST_NAMES]
    if not names:
        return None
    return names, form.learn(names, [bytes(row[0]) for row in some], taken)
