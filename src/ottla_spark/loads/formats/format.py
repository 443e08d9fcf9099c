"""What a load asks of a format.

`decode` never fails because of a record: one that does not fit gets a reason instead of a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

VALUE = "_ottla_value"
REASON = "_ottla_reason"
NEWS = "_ottla_news"


class Learned(NamedTuple):
    """Fields that records have and the schema has not, and the format that has them."""

    fields: StructType
    format: Format


class Format(Protocol):
    """One format with one schema; it does not change, `learn` gives another."""

    schema: StructType

    def decode(self, records: DataFrame) -> DataFrame:
        """Add VALUE (a struct), REASON (why it does not fit, else null) and NEWS to records.

        NEWS names what a value has beyond the schema, as an array of text; null or empty if
        nothing. Where the column `value` is null, the three mean nothing.
        """

    def explain(self, misfits: DataFrame) -> DataFrame:
        """Better words in REASON for the few records that did not fit."""

    def learn(self, news: Sequence[str], values: Sequence[bytes]) -> Learned:
        """What is new, from what NEWS said and some of the values that said it."""

    def ignoring(self, news: Sequence[str]) -> Format:
        """The same format, for which these are no news any more."""
