"""The option --schema of JSON: DDL, a file with DDL, or a file with Spark's JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.schema.evolution import as_nullable

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


def read_spark_schema(given: str) -> StructType:
    """Return the schema that --schema names. Parsing DDL needs a running Spark."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    path = Path(given)
    if "\n" not in given and path.is_file():
        text = path.read_text(encoding="utf-8")
    elif path.suffix in {".json", ".ddl", ".sql"} and " " not in given:
        raise LoadUsageError(f"--schema: the file {given} does not exist")
    else:
        text = given
    try:
        if text.lstrip().startswith("{"):
            found: DataType = StructType.fromJson(json.loads(text))
        else:
            found = StructType.fromDDL(text.strip().rstrip(";"))
    except (PySparkException, ValueError, KeyError, TypeError) as error:
        why = str(error).strip().splitlines()[0]
        raise LoadUsageError(
            f"--schema is neither DDL (id BIGINT, name STRING) nor a file with it: {why}"
        ) from None
    if not isinstance(found, StructType):
        raise LoadUsageError("--schema should list fields: id BIGINT, name STRING")
    return as_nullable(found)
