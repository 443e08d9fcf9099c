"""The option --schema of JSON: DDL, a file with DDL, or a file with Spark's JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.formats.ddl_types import unknown_type
from ottla_spark.loads.schema.evolution import as_nullable

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


def check_spark_schema(given: str) -> None:
    """Raise LoadUsageError for a --schema that Spark will refuse, as far as that is known now."""
    text = _text(given)
    if _is_json(text):
        _parse(text)
    elif word := unknown_type(text):
        raise _wrong(f"there is no type {word}")


def read_spark_schema(given: str) -> StructType:
    """Return the schema that --schema names. Parsing DDL needs a running Spark."""
    return as_nullable(_parse(_text(given)))


def _text(given: str) -> str:
    """Return the schema itself, which may be in a file."""
    path = Path(given)
    if "\n" not in given and path.is_file():
        return path.read_text(encoding="utf-8")
    if path.suffix in {".json", ".ddl", ".sql"} and " " not in given:
        raise LoadUsageError(f"--schema: the file {given} does not exist")
    return given


def _parse(text: str) -> StructType:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        if _is_json(text):
            found: DataType = StructType.fromJson(json.loads(text))
        else:
            found = StructType.fromDDL(text.strip().rstrip(";"))
    except (PySparkException, ValueError, KeyError, TypeError) as error:
        raise _wrong(str(error).strip().splitlines()[0]) from None
    if not isinstance(found, StructType):
        raise LoadUsageError("--schema should list fields: id BIGINT, name STRING")
    return found


def _is_json(text: str) -> bool:
    return text.lstrip().startswith("{")


def _wrong(why: str) -> LoadUsageError:
    return LoadUsageError(
        f"--schema is neither DDL (id BIGINT, name STRING) nor a file with it: {why}"
    )
