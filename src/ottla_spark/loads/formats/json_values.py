"""Parses JSON values with Spark's own parser: exactly one object in each value.

Spark's from_json stops after the first JSON value and ignores what follows. So the text is parsed
inside a list, where only a bracket or a comma may follow a value. It fits if the list has one
element, and if the object around the list was read to its end.

A text could close that list itself, as in `{"id": 1}], "x": [2`. Where it may have, it must also be
right as the value of a name, where a bracket that closes a list is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

_LIST: Final = "v"
_END: Final = "_ottla_end"
_CORRUPT: Final = "_ottla_corrupt"
_AFTER_A_LIST: Final = r"""\]\s*,\s*["']"""
"""What a text needs to close the list and to continue the object around it."""
_OPTIONS: Final = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}


def parse_json(text: Column, schema: StructType) -> Column:
    """Return a struct for `json_fits` and `json_value`. This parses each text once."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    around = T.StructType(
        [
            T.StructField(_LIST, T.ArrayType(schema)),
            T.StructField(_END, T.BooleanType()),
            T.StructField(_CORRUPT, T.StringType()),
        ]
    )
    whole = F.concat(F.lit(f'{{"{_LIST}":['), text, F.lit(f'],"{_END}":true}}'))
    return F.from_json(whole, around, _OPTIONS)


def json_fits(parsed: Column, text: Column) -> Column:
    """Return whether the text was one object, and all its fields had the types of the schema."""
    from pyspark.sql import functions as F

    is_whole = parsed[_CORRUPT].isNull() & parsed[_END].isNotNull() & (F.size(parsed[_LIST]) == 1)
    may_close_the_list = F.contains(text, F.lit("]")) & text.rlike(_AFTER_A_LIST)
    named = F.concat(F.lit(f'{{"{_LIST}":'), text, F.lit(f',"{_END}":true}}'))
    is_a_value = F.from_json(named, f"{_END} BOOLEAN")[_END].isNotNull()
    fits = is_whole & parsed[_LIST][0].isNotNull() & (~may_close_the_list | is_a_value)
    return F.coalesce(fits, F.lit(False))


def json_value(parsed: Column) -> Column:
    """Return the object as a struct; it has a meaning only if the text fits."""
    from pyspark.sql import functions as F

    return F.get(parsed[_LIST], F.lit(0))
