"""Avro and Protobuf: formats that Python decodes, in Arrow batches on the executors."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ottla_spark.loads.formats.format import REASON, UNKNOWN, VALUE, Learned
from ottla_spark.loads.schema.arrow_types import arrow_type, udf_on_arrays
from ottla_spark.loads.schema.evolution import missing_fields, widened, without_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_DECODED = "_ottla_decoded"


class Misfit(Exception):
    """A value cannot be decoded; the message says why."""


class Decoded(NamedTuple):
    """The fields of a value. `unknown` names what it has that the schema lacks, if anything."""

    fields: dict[str, object]
    unknown: str | None = None


class Decoder(Protocol):
    """Decodes values in an executor. It is pickled, so it creates unpicklable parts when used."""

    def decode(self, value: bytes) -> Decoded:
        """Return the value's fields; raise Misfit if it cannot be decoded."""

    def fields_of(self, unknown: str) -> StructType:
        """Return the fields of values with this `unknown`; empty if they are not known."""

    def ignoring(self, unknown: Sequence[str]) -> Decoder:
        """Return a decoder that no longer reports these as new."""


class BinaryFormat:
    """Values that `decoder` turns into the fields of `schema`. It may return more or fewer."""

    def __init__(self, schema: StructType, decoder: Decoder) -> None:
        self.schema = schema
        self._decoder = decoder

    def decode(self, records: DataFrame) -> DataFrame:
        """Send only the values to Python, which returns structs of VALUE, REASON and UNKNOWN."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import ArrayType, StringType, StructField, StructType

        made = StructType(
            [
                StructField(VALUE, self.schema),
                StructField(REASON, StringType()),
                StructField(UNKNOWN, ArrayType(StringType())),
            ]
        )
        decoder, kind = self._decoder, arrow_type(self.schema)

        def decode(values: Any) -> Any:
            return decode_array(values, decoder, kind)

        # Declared nondeterministic, because the optimizer may otherwise run it several times.
        made_by = udf_on_arrays(decode, made).asNondeterministic()
        decoded = records.select("*", made_by(F.col("value")).alias(_DECODED))
        return decoded.select("*", f"{_DECODED}.*").drop(_DECODED)

    def explain(self, misfits: DataFrame) -> DataFrame:
        """Return the records as they are: the reasons are complete."""
        return misfits

    def learn(
        self, unknown: Sequence[str], values: Sequence[bytes], taken: Collection[str] = ()
    ) -> Learned:
        """Return the new fields whose types the decoder knows.

        A schema of the registry that is older than the columns has none.
        """
        from pyspark.sql.types import StructType

        schema, fields = self.schema, StructType([])
        left_out = {}
        for each in unknown:
            named = self._decoder.fields_of(each)
            if not named.fields:
                left_out[each] = "the schema does not have it"
            missing = missing_fields(schema, without_names(named, taken))
            schema, fields = widened(schema, missing), widened(fields, missing)
        return Learned(fields, BinaryFormat(schema, self._decoder), left_out)

    def ignoring(self, unknown: Sequence[str]) -> BinaryFormat:
        """Return a format that no longer reports these as new."""
        return BinaryFormat(self.schema, self._decoder.ignoring(unknown))


def decode_array(values: Any, decoder: Decoder, kind: Any) -> Any:
    """Return a struct array of VALUE, REASON and UNKNOWN for an array of binary values."""
    import pyarrow as pa

    decoded: list[dict[str, object] | None] = []
    reasons: list[str | None] = []
    unknown: list[list[str] | None] = []
    for value in values.to_pylist():
        fields, why, new = _decode_one(value, decoder)
        decoded.append(fields)
        reasons.append(why)
        unknown.append(new)
    return pa.StructArray.from_arrays(
        [_structs(decoded, reasons, kind), pa.array(reasons, pa.string()), _texts(unknown)],
        names=[VALUE, REASON, UNKNOWN],
    )


def _decode_one(
    value: bytes | None, decoder: Decoder
) -> tuple[dict[str, object] | None, str | None, list[str] | None]:
    if value is None:
        return None, None, None
    try:
        fields, new = decoder.decode(value)
    except Misfit as error:
        return None, str(error), None
    return fields, None, None if new is None else [new]


def _structs(decoded: list[dict[str, object] | None], reasons: list[str | None], kind: Any) -> Any:
    """Convert all values at once; one by one only if some value does not fit the type."""
    import pyarrow as pa

    try:
        return pa.array(decoded, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    for place, fields in enumerate(decoded):
        try:
            pa.array([fields], kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            decoded[place], reasons[place] = None, f"does not fit the schema: {error}"
    return pa.array(decoded, kind)


def _texts(unknown: list[list[str] | None]) -> Any:
    import pyarrow as pa

    return pa.array(unknown, pa.list_(pa.field("element", pa.string())))
