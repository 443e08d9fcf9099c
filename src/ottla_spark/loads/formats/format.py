"""The interface of a value format.

`decode` never fails because of a record. A record that does not fit gets a reason, and no value.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

VALUE = "_ottla_value"
REASON = "_ottla_reason"
UNKNOWN = "_ottla_unknown"


class Learned(NamedTuple):
    """The fields that records have and the schema lacks, and a format that has them.

    `left_out` are names of fields that cannot be added, and why.
    """

    fields: StructType
    format: Format
    left_out: Mapping[str, str]


class Format(Protocol):
    """A format with a schema. It never changes; `learn` returns another one."""

    schema: StructType

    def decode(self, records: DataFrame) -> DataFrame:
        """Add VALUE (a struct), REASON (why it does not fit, or null) and UNKNOWN to records.

        UNKNOWN is an array that names what a value has and the schema lacks; null or empty if
        nothing. If the column `value` is null, the three have no meaning.
        """

    def explain(self, misfits: DataFrame) -> DataFrame:
        """Replace REASON by a better explanation, for the few records that do not fit."""

    def learn(
        self, unknown: Sequence[str], values: Sequence[bytes], taken: Collection[str] = ()
    ) -> Learned:
        """Return the new fields, from entries of UNKNOWN and some of the values with them.

        `taken` are names, in lower case, of columns that the table has for something else.
        """

    def ignoring(self, unknown: Sequence[str]) -> Format:
        """Return a format that no longer reports these as new."""
