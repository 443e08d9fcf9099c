"""Decodes JSON values with Spark's own parser.

A record fits if it is an object and all its fields have the types of the schema. A missing field
is null. Fields that the schema lacks are new; they are searched at the top and in structs, not in
lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ottla_spark.loads.formats.format import REASON, UNKNOWN, VALUE, Learned
from ottla_spark.loads.formats.json_inference import infer
from ottla_spark.loads.formats.json_mismatch import reason
from ottla_spark.loads.schema.arrow_types import udf_on_arrays
from ottla_spark.loads.schema.evolution import missing_fields, widened

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_CORRUPT = "_ottla_corrupt"
_OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}


class JsonFormat:
    """JSON objects with the fields of `schema`. `ignored` are new fields already reported."""

    def __init__(self, schema: StructType, ignored: frozenset[str] = frozenset()) -> None:
        self.schema = schema
        self._ignored = ignored

    def decode(self, records: DataFrame) -> DataFrame:
        """Parse once. Spark's corrupt-record column marks values that do not fit."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructField, StructType

        text = F.col("value").cast("string")
        marked = StructType([*self.schema.fields, StructField(_CORRUPT, StringType())])
        parsed = F.col(VALUE)
        misfit = parsed.isNull() | parsed[_CORRUPT].isNotNull() | ~F.is_valid_utf8(text)
        return records.select("*", F.from_json(text, marked, _OPTIONS).alias(VALUE)).select(
            "*",
            F.when(misfit, F.lit("does not fit the schema")).alias(REASON),
            self._unknown_names(text).alias(UNKNOWN),
        )

    def explain(self, misfits: DataFrame) -> DataFrame:
        """Look at each value again in Python, which can tell what is wrong."""
        from pyspark.sql import functions as F

        schema = self.schema

        def reasons(values: Any) -> Any:
            import pyarrow as pa

            said = (
                None if value is None else reason(value, schema) for value in values.to_pylist()
            )
            return pa.array(said, pa.string())

        explained = udf_on_arrays(reasons, "string")(F.col("value"))
        return misfits.withColumn(REASON, explained)

    def learn(self, unknown: Sequence[str], values: Sequence[bytes]) -> Learned:
        """Return the new fields, with the types of these values."""
        fields = missing_fields(self.schema, infer(values))
        return Learned(fields, JsonFormat(widened(self.schema, fields), self._ignored))

    def ignoring(self, unknown: Sequence[str]) -> JsonFormat:
        """Return a format that no longer reports these fields as new."""
        return JsonFormat(self.schema, self._ignored | set(unknown))

    def _unknown_names(self, text: Column) -> Column:
        from pyspark.sql import functions as F

        found = [
            F.coalesce(self._beyond(text, path, struct), F.array().cast("array<string>"))
            for path, struct in _structs(self.schema, ())
        ]
        return F.concat(*found)

    def _beyond(self, text: Column, path: tuple[str, ...], struct: StructType) -> Column:
        """Return the paths of the names in the object at `path` that its struct lacks."""
        from pyspark.sql import functions as F

        prefix = "".join(f"{name}." for name in path)
        there = "$" + "".join(f"['{name}']" for name in path)
        inside = F.get_json_object(text, there) if path else text
        ignored = [name.removeprefix(prefix) for name in self._ignored if name.startswith(prefix)]
        known = F.array(*(F.lit(name) for name in [*struct.names, *ignored]))
        names = F.array_except(F.json_object_keys(inside), known)
        return F.transform(names, lambda name: F.concat(F.lit(prefix), name)) if path else names


def _structs(
    schema: StructType, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], StructType]]:
    """Yield every struct with its path, the schema itself first."""
    from pyspark.sql.types import StructType

    yield path, schema
    for field in schema.fields:
        if isinstance(field.dataType, StructType) and "'" not in field.name:
            yield from _structs(field.dataType, (*path, field.name))
