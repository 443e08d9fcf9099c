"""JSON values, read by Spark's own parser.

A record fits when it is an object and every field that is there has the type of the schema. A
field that is missing is null. Fields beyond the schema are news: looked for at the top and in
structs, not inside lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ottla_spark.loads.formats.format import NEWS, REASON, VALUE, Learned
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
    """JSON objects with the fields of `schema`; `ignored` are fields that were told of already."""

    def __init__(self, schema: StructType, ignored: frozenset[str] = frozenset()) -> None:
        self.schema = schema
        self._ignored = ignored

    def decode(self, records: DataFrame) -> DataFrame:
        """Parse once; what did not parse or convert is marked by Spark's corrupt-record column."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructField, StructType

        text = F.col("value").cast("string")
        marked = StructType([*self.schema.fields, StructField(_CORRUPT, StringType())])
        parsed = F.col(VALUE)
        misfit = parsed.isNull() | parsed[_CORRUPT].isNotNull() | ~F.is_valid_utf8(text)
        return records.select("*", F.from_json(text, marked, _OPTIONS).alias(VALUE)).select(
            "*",
            F.when(misfit, F.lit("does not fit the schema")).alias(REASON),
            self._news(text).alias(NEWS),
        )

    def explain(self, misfits: DataFrame) -> DataFrame:
        """Look at each value again in Python, which can say what is wrong."""
        from pyspark.sql import functions as F

        schema = self.schema

        def reasons(values: Any) -> Any:
            import pyarrow as pa

            said = (
                None if value is None else reason(value, schema) for value in values.to_pylist()
            )
            return pa.array(said, pa.string())

        told = udf_on_arrays(reasons, "string")(F.col("value"))
        return misfits.withColumn(REASON, told)

    def learn(self, news: Sequence[str], values: Sequence[bytes]) -> Learned:
        """The new fields with the types that these values show."""
        fields = missing_fields(self.schema, infer(values))
        return Learned(fields, JsonFormat(widened(self.schema, fields), self._ignored))

    def ignoring(self, news: Sequence[str]) -> JsonFormat:
        """The same format, for which these fields are no news any more."""
        return JsonFormat(self.schema, self._ignored | set(news))

    def _news(self, text: Column) -> Column:
        from pyspark.sql import functions as F

        found = [
            F.coalesce(self._beyond(text, path, struct), F.array().cast("array<string>"))
            for path, struct in _structs(self.schema, ())
        ]
        return F.concat(*found)

    def _beyond(self, text: Column, path: tuple[str, ...], struct: StructType) -> Column:
        """The names in the object at `path` that its struct does not have, with the path."""
        from pyspark.sql import functions as F

        prefix = "".join(f"{name}." for name in path)
        there = "$" + "".join(f"['{name}']" for name in path)
        inside = F.get_json_object(text, there) if path else text
        told = [name.removeprefix(prefix) for name in self._ignored if name.startswith(prefix)]
        known = F.array(*(F.lit(name) for name in [*struct.names, *told]))
        names = F.array_except(F.json_object_keys(inside), known)
        return F.transform(names, lambda name: F.concat(F.lit(prefix), name)) if path else names


def _structs(
    schema: StructType, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], StructType]]:
    """Every struct with its path, the schema itself first."""
    from pyspark.sql.types import StructType

    yield path, schema
    for field in schema.fields:
        if isinstance(field.dataType, StructType) and "'" not in field.name:
            yield from _structs(field.dataType, (*path, field.name))
