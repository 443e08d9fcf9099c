"""Rules of a load that need no Spark: schema evolution, file sizes, statistics, causes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T

from ottla_spark.loads.errors import DataLost, LoadError, LoadUsageError
from ottla_spark.loads.options.load_options import LoadOptions
from ottla_spark.loads.options.partition_by import parse_partition_by
from ottla_spark.loads.options.value_format import ValueFormat
from ottla_spark.loads.run.batch_size import batch_size
from ottla_spark.loads.run.failure_cause import load_error, root_cause
from ottla_spark.loads.run.file_size import FileSize
from ottla_spark.loads.schema.arrow_types import arrow_schema, spark_schema
from ottla_spark.loads.schema.evolution import as_nullable, difference, missing_fields, widened
from ottla_spark.loads.schema.table_columns import table_columns
from ottla_spark.loads.targets.address import TableAddress
from ottla_spark.loads.targets.delta_statistics import delta_statistics
from pyspark_ottla.source.data_loss import ADVICE

MIB = 1 << 20


def struct(**fields: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in fields.items()])


LONG, TEXT = T.LongType(), T.StringType()


def test_missing_fields_are_found_inside_structs_and_added_there() -> None:
    table = struct(id=LONG, who=struct(name=TEXT))
    wanted = struct(who=struct(age=LONG, name=TEXT), more=TEXT, ID=TEXT)
    missing = missing_fields(table, wanted)
    assert missing == struct(who=struct(age=LONG), more=TEXT)  # ID is id but for its case
    assert widened(table, missing) == struct(id=LONG, who=struct(name=TEXT, age=LONG), more=TEXT)


def test_differences() -> None:
    table = struct(id=LONG, who=struct(name=TEXT), tags=T.ArrayType(TEXT), more=TEXT)
    assert difference(table, struct(tags=T.ArrayType(TEXT), id=LONG)) == ""
    assert (
        difference(table, struct(id=TEXT)) == "id is bigint in the table and string in the records"
    )
    assert "the table has no age" in difference(table, struct(who=struct(age=LONG)))
    assert difference(table, struct(tags=T.ArrayType(LONG))) != ""


def test_nulls_allowed_everywhere() -> None:
    inner = T.StructType([T.StructField("x", TEXT, False)])
    listed, mapped = T.ArrayType(inner, False), T.MapType(TEXT, inner, False)
    strict = T.StructType([T.StructField(name, kind, False) for name, kind in
                           (("a", LONG), ("b", listed), ("c", mapped))])  # fmt: skip
    loose = struct(x=TEXT)
    assert as_nullable(strict) == struct(a=LONG, b=T.ArrayType(loose), c=T.MapType(TEXT, loose))


def test_arrow_and_back() -> None:
    schema = struct(
        a=T.BooleanType(), b=T.ByteType(), c=T.ShortType(), d=T.IntegerType(), e=LONG,
        f=T.FloatType(), g=T.DoubleType(), h=TEXT, i=T.BinaryType(), j=T.DateType(),
        k=T.TimestampType(), m=T.TimestampNTZType(), n=T.DecimalType(9, 2),
        o=T.ArrayType(struct(x=TEXT)), p=T.MapType(TEXT, LONG),
    )  # fmt: skip
    assert spark_schema(arrow_schema(schema)) == schema
    with pytest.raises(LoadUsageError, match="cannot be loaded"):
        arrow_schema(struct(v=T.VariantType()))


def test_small_batches_are_written_by_few_tasks_and_files_end_at_their_size() -> None:
    sizing = FileSize(100 * MIB)
    assert (sizing.most_rows_a_file(), sizing.tasks(10, 8)) == (0, 8)
    sizing.learn(1000, MIB)
    assert sizing.most_rows_a_file() == 100_000
    assert sizing.tasks(1_000, 8) == 1
    assert sizing.tasks(150_000, 8) == 2
    assert sizing.tasks(800_000, 8) == 8
    assert sizing.tasks(None, 8) == 8


def test_statistics_of_a_file(tmp_path: Path) -> None:
    from datetime import UTC, date, datetime

    at = datetime(2026, 1, 31, 12, 0, 0, 123_456, tzinfo=UTC)
    table = pa.table(
        {
            "n": pa.array([3, None, 1], pa.int64()),
            "day": pa.array([date(2026, 1, 1), date(2026, 1, 2), None]),
            "at": pa.array([at, at, at], pa.timestamp("us", "UTC")),
            "text": ["x", "y", None],
            "nothing": pa.array([None, None, None], pa.int32()),
            "in": [{"a": 1}, None, {"a": 2}],
        }
    )
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=2)
    found = delta_statistics(pq.read_metadata(tmp_path / "x.parquet"))
    assert found["numRecords"] == 3
    assert found["minValues"] == {"n": 1, "day": "2026-01-01", "at": "2026-01-31T12:00:00.123Z"}
    assert found["maxValues"] == {"n": 3, "day": "2026-01-02", "at": "2026-01-31T12:00:00.124Z"}
    assert found["nullCount"] == {"n": 1, "day": 1, "at": 0, "text": 1, "nothing": 3}


def test_times_at_the_end_of_pythons_calendar_have_no_statistics(tmp_path: Path) -> None:
    from datetime import datetime

    for_ever = datetime(9999, 12, 31, 23, 59, 59, 999_000)
    table = pa.table(
        {
            "at": pa.array([None, for_ever], pa.timestamp("us")),
            "later": pa.array([0, 10**18], pa.timestamp("us")),  # in the year 33658
            "day": pa.array([0, 10**7], pa.date32()),
            "n": [1, 2],
        }
    )
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=1)
    found = delta_statistics(pq.read_metadata(tmp_path / "x.parquet"))
    assert (found["minValues"], found["maxValues"]) == ({"n": 1}, {"n": 2})
    assert found["nullCount"] == {"at": 1, "later": 0, "day": 0, "n": 0}


def options(kind: str, **more: object) -> LoadOptions:
    given: dict[str, object] = {"topic": "t", "to": TableAddress(kind, "/x"), "client": {}}
    return LoadOptions(**(given | more))  # type: ignore[arg-type]


def test_columns_of_tables() -> None:
    day = parse_partition_by(["day(timestamp)"])
    raw = table_columns(options("delta", partition_by=day), None)
    assert raw.schema.names[-2:] == ["timestampType", "timestamp_day"]
    values = struct(id=T.ByteType(), at=T.TimestampType())
    json = {"format": ValueFormat.JSON}
    plain = table_columns(options("parquet", partition_by=day, **json), values)
    assert plain.schema.simpleString() == "struct<id:tinyint,at:timestamp,timestamp_day:date>"
    upsert = table_columns(options("iceberg", upsert=True, **json), values)
    assert upsert.schema.simpleString() == "struct<id:int,at:timestamp,_key:binary>"
    with pytest.raises(LoadUsageError, match="--coordinates gives it"):
        table_columns(options("iceberg", partition_by=day, **json), values)
    given = table_columns(options("iceberg", partition_by=day, coordinates=True, **json), values)
    assert [part.source for part in given.partitions] == ["_timestamp"]
    with pytest.raises(LoadUsageError, match="two columns '_key'"):
        table_columns(options("delta", upsert=True, **json), struct(_key=TEXT))


WORKER_FAILED = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted
Traceback (most recent call last):
  File "batches.py", line 1, in call
py4j.protocol.Py4JJavaError: An error occurred while calling o1.addBatch.
: org.apache.spark.SparkException: Job aborted due to stage failure
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "reading.py", line 1, in read
pyspark_ottla.errors.DataLoss: t-0: 5 offsets from 1 to 5 cannot be read, they are gone. Advice

	at org.apache.spark.api.python.BasePythonRunner
"""


def test_causes() -> None:
    assert root_cause(WORKER_FAILED).startswith("t-0: 5 offsets from 1 to 5 cannot be read")
    java = "\n".join(WORKER_FAILED.splitlines()[:5])
    assert root_cause(java) == "Job aborted due to stage failure"
    assert root_cause("nothing more") == "nothing more"
    assert root_cause("") == "no reason given"


def test_errors_that_end_a_load() -> None:
    from pyspark.errors import PySparkException

    lost = load_error(PySparkException(WORKER_FAILED), None)
    assert isinstance(lost, DataLost)
    advice = f"{DataLost.__module__}.DataLoss: t-0: 3 records are lost: x. {ADVICE}"
    lost = load_error(PySparkException(f"Traceback (most recent call last)\n{advice}"), None)
    assert str(lost) == (
        "t-0: 3 records are lost: x. Load the remaining records with --allow-data-loss"
    )
    kept = LoadUsageError("mine")
    assert load_error(PySparkException("x"), kept) is kept
    assert type(load_error(PySparkException("x"), ValueError("y"))) is LoadError
    missing = load_error(PySparkException('No FileSystem for scheme "s3a"'), None)
    assert type(missing) is LoadUsageError
    assert "Run the same command" not in str(missing)


def test_large_records_fill_a_file_before_sizes_are_learned() -> None:
    assert FileSize(128 * MIB, 10 * MIB).most_rows_a_file() == 13
    assert FileSize(128 * MIB, 1000).most_rows_a_file() == 0
    learning = FileSize(128 * MIB, 10 * MIB)
    learning.learn(10, MIB)
    assert learning.most_rows_a_file() == 1280


def test_the_size_of_batches() -> None:
    to = TableAddress("delta", "/t")
    usual = batch_size(LoadOptions("t", to, {}), 4, 0)
    assert (usual.records, usual.size, usual.task_size) == (10_000_000, 4 << 30, 1 << 30)
    assert batch_size(LoadOptions("t", to, {}), 4, 1) == usual
    third = batch_size(LoadOptions("t", to, {}), 4, 3)
    assert (third.records, third.size, third.task_size) == (625_000, 1 << 28, 1 << 26)
    upserts = batch_size(LoadOptions("t", to, {}, upsert=True), 4, 0)
    assert (upserts.records, upserts.size) == (500_000, 1 << 28)
    given = LoadOptions("t", to, {}, max_records_per_batch=100, max_bytes_per_batch=1000)
    assert batch_size(given, 4, 0).options() == {
        "maxOffsetsPerTrigger": "100",
        "maxBytesPerTrigger": "1000",
        "maxBytesPerPartition": str(1 << 30),
    }
    assert batch_size(given, 4, 50).records == 1
