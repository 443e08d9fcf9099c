"""Decodes JSON values with Spark's own parser.

A record fits if it is one object and all its fields have the types of the schema. A missing field
is null. Fields that the schema lacks are new; they are searched at the top and in structs, not in
lists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ottla_spark.loads.formats.format import REASON, UNKNOWN, VALUE, Learned
from ottla_spark.loads.formats.json_inference import infer, is_usable
from ottla_spark.loads.formats.json_mismatch import reason
from ottla_spark.loads.formats.json_values import json_fits, json_value, parse_json
from ottla_spark.loads.schema.arrow_types import udf_on_arrays
from ottla_spark.loads.schema.evolution import missing_fields, widened, without_names
from ottla_spark.loads.schema.field_types import field_types

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_PARSED = "_ottla_parsed"


class JsonFormat:
    """JSON objects with the fields of `schema`. `ignored` are new fields already reported."""

    def __init__(self, schema: StructType, ignored: frozenset[str] = frozenset()) -> None:
        self.schema = schema
        self._ignored = ignored

    def decode(self, records: DataFrame) -> DataFrame:
        """Parse each value once."""
        from pyspark.sql import functions as F

        text = F.col("value").cast("string")
        parsed = F.col(_PARSED)
        misfit = ~json_fits(parsed, text) | ~F.is_valid_utf8(text)
        return (
            records.select("*", parse_json(text, self.schema).alias(_PARSED))
            .select(
                "*",
                json_value(parsed).alias(VALUE),
                F.when(misfit, F.lit("does not fit the schema")).alias(REASON),
                self._unknown_names(text).alias(UNKNOWN),
            )
            .drop(_PARSED)
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

    def learn(
        self, unknown: Sequence[str], values: Sequence[bytes], taken: Collection[str] = ()
    ) -> Learned:
        """Return the new fields, with the types of these values."""
        fields = missing_fields(self.schema, without_names(infer(values), taken))
        found = [name for name, _ in field_types(fields)]
        left_out = {
            name: _why_left_out(name, taken)
            for name in unknown
            if not any(each == name or each.startswith(f"{name}.") for each in found)
        }
        return Learned(fields, JsonFormat(widened(self.schema, fields), self._ignored), left_out)

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


def _why_left_out(name: str, taken: Collection[str]) -> str:
    if name.lower() in taken:
        return "the table has another column with this name"
    if not all(is_usable(part) for part in name.split(".")):
        return "it is no name for a column"
    return "its name differs from another field only by case"
