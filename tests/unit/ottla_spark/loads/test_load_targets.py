"""Load targets: each is one file, found by one line in the registry."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import types as T

from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.options.load_options import LoadOptions
from ottla_spark.loads.options.partition_by import parse_partition_by
from ottla_spark.loads.run.batch_loader import BatchLoader
from ottla_spark.loads.run.dead_letters import DeadLetterTopic
from ottla_spark.loads.schema.table_columns import table_columns
from ottla_spark.loads.state.arrow_storage import ArrowStorage
from ottla_spark.loads.state.load_directory import LoadDirectory
from ottla_spark.loads.targets import registry
from ottla_spark.loads.targets.address import TableAddress, parse_address
from ottla_spark.loads.targets.table_writer import RECORDS, Added, Batch, TableWriter
from ottla_spark.loads.targets.target import Target
from ottla_spark.pipelines.spec.pipeline_file import read_text
from ottla_spark.pipelines.spec.problems import Problems

TARGETS_DIRECTORY = Path(registry.__file__).parent


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the target of tests/support/lines_target.py: one file and one line."""
    monkeypatch.setitem(registry.TARGETS, "lines", "tests.support.lines_target")


class Rows:
    """As much of a DataFrame as the target uses."""

    def __init__(self, *rows: dict[str, object]) -> None:
        self.rows = rows

    def collect(self) -> list[Any]:
        return [SimpleNamespace(asDict=lambda row=row: row) for row in self.rows]


class StubFiles:
    """Lets a BatchLoader write without Spark's functions, which count and decode."""

    def __init__(self, table: TableWriter) -> None:
        self._table = table

    def reader(self, spark: Any) -> Any:
        raise AssertionError("no query runs here")

    def add(self, batch: Batch, files: Any) -> Added:
        measures: Any = SimpleNamespace(get={RECORDS: len(files.rows)})
        return self._table.add(batch, files, measures, 0)

    def set_rows_per_file(self, rows: int) -> None:
        """Ignore the number."""


@pytest.mark.usefixtures("lines")
def test_a_load_into_a_target_that_is_one_file(tmp_path: Path) -> None:
    options = LoadOptions("t", parse_address(f"lines:{tmp_path}/table"), {})
    assert options.group_id.startswith("ottla-load.t.table.")
    spark = cast(Any, None)  # this target needs none
    target = options.to.target
    table = target.open(spark, options.to.location, options.topic, catalog=options.catalog)
    columns = table_columns(options, None)
    table.prepare(columns.schema, columns.partitions, widen=False)
    directory = LoadDirectory(ArrowStorage(), f"{tmp_path}/load")
    Path(directory.checkpoint.path).mkdir(parents=True)
    Path(directory.checkpoint.path, "metadata").write_text('{"id": "query"}')

    def loader() -> BatchLoader:
        dead_letters = DeadLetterTopic("dead", {})
        return BatchLoader(options, directory, table, dead_letters, None, print, StubFiles(table))

    first = loader()
    first(cast(Any, Rows({"offset": 0}, {"offset": 1})), 0)
    first(cast(Any, Rows({"offset": 2})), 1)
    assert (first.tally.records, first.tally.batches, first.tally.files) == (3, 2, 2)
    again = loader()  # as after a crash: Spark repeats the last batch, then goes on
    again(cast(Any, Rows({"offset": 2})), 1)
    again(cast(Any, Rows({"offset": 3})), 2)
    assert (again.tally.records, table.last_batch("query")) == (1, 2)
    files = sorted((tmp_path / "table").iterdir())
    assert "".join(file.read_text() for file in files) == "".join(
        f'{{"offset": {offset}}}\n' for offset in range(4)
    )


@pytest.mark.usefixtures("lines")
def test_what_a_new_target_does_not_offer_is_refused_by_default() -> None:
    to = TableAddress("lines", "/x")
    with pytest.raises(LoadUsageError, match=r"lines: table cannot replace rows\. Use delta: or"):
        LoadOptions("t", to, {}, upsert=True)
    with pytest.raises(LoadUsageError, match=r"compact a lines: table\. Only parquet: or delta:"):
        LoadOptions("t", to, {}, compact=True)
    with pytest.raises(LoadUsageError, match=r"iceberg:CATALOG.NAMESPACE.TABLE or lines:PATH"):
        parse_address("csv:/x")
    day = LoadOptions("t", to, {}, partition_by=parse_partition_by(["day(timestamp)"]))
    columns = table_columns(day, None)
    table = to.target.open(cast(Any, None), to.location, "t", catalog={})
    with pytest.raises(LoadUsageError, match="--partition-by"):
        table.prepare(columns.schema, columns.partitions, widen=False)


@pytest.mark.usefixtures("lines")
def test_pipelines_take_a_new_target() -> None:
    text = """
        sources: {a: {table: "lines:in"}, b: {topic: b}}
        sinks: {c: {from: b, table: "lines:out"}, d: {from: b, table: "lines:no", upsert: id}}
    """
    problems = Problems()
    spec = read_text(text, Path("/p/file.yaml"), problems)
    assert spec is not None
    assert spec.sources["a"].place.location == "/p/in"  # type: ignore[union-attr]
    assert [found.where for found in problems] == ["sinks.d.upsert"]


@pytest.mark.parametrize("scheme", registry.TARGETS)
def test_every_target(scheme: str) -> None:
    target = registry.target_of(scheme)
    assert isinstance(target, Target)
    assert target.form.startswith(f"{scheme}:")
    assert target is importlib.import_module(registry.TARGETS[scheme]).TARGET
    location = target.parse_location("a.b.c", lambda path: f"/x/{path}")
    assert location is not None
    assert target.is_directory == location.startswith("/x/")
    assert target.table_name(location) in {"c", "a.b.c"}
    assert (target.catalog_name(location) is None) == target.is_directory
    assert target.column_type(T.LongType()) == T.LongType()
    assert str(parse_address(f"{scheme}:/x.y/z.t")).startswith(f"{scheme}:")


def test_every_file_of_a_target_is_registered() -> None:
    found = {
        path.stem for path in TARGETS_DIRECTORY.glob("*.py") if "\nTARGET = " in path.read_text()
    }
    assert found == set(registry.TARGETS)


def test_no_target_imports_its_library_before_it_is_used() -> None:
    code = (
        "import sys; from ottla_spark.loads.targets.registry import all_targets; all_targets();"
        " print([name for name in ('pyarrow', 'deltalake', 'pyiceberg')"
        " if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
