"""Raw loads whose workers write the files: same files as Spark's, exactly once."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow.parquet as pq
import pytest

import ottla_spark
from ottla_spark.loads.errors import LoadError
from ottla_spark.loads.options.load_options import LoadOptions
from ottla_spark.loads.options.partition_by import parse_partition_by
from ottla_spark.loads.options.value_format import ValueFormat
from ottla_spark.loads.schema.evolution import as_nullable
from ottla_spark.loads.state.storage import HadoopStorage
from ottla_spark.loads.targets.address import TableAddress
from ottla_spark.loads.targets.parquet import ParquetTableWriter
from ottla_spark.loads.targets.parquet_sink_log import SinkLog
from ottla_spark.loads.targets.parquet_worker_files import (
    CODEC_SETTING,
    OLD_LISTS_SETTING,
    can_use_worker_files,
)
from ottla_spark.loads.targets.table_writer import Batch
from tests.support.spark_fixtures import MakeTopic, Produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_TRIES = 5
SETTINGS = {CODEC_SETTING: "snappy", OLD_LISTS_SETTING: "false"}


def parts(table: Path) -> list[Path]:
    return sorted(table.glob("part-*.parquet"))


def is_workers(path: Path) -> bool:
    return "parquet-cpp" in pq.read_metadata(path).created_by


def spark_words(path: Path) -> dict[bytes, object]:
    """Return what Spark reads in the footer besides the columns."""
    words = pq.read_metadata(path).metadata
    version = words.pop(b"org.apache.spark.version")
    return {b"version": version} | {name: json.loads(text) for name, text in words.items()}


def parquet_columns(path: Path) -> list[str]:
    """Return the columns as Parquet has them: all but the name of the whole."""
    lines = str(pq.read_metadata(path).schema).splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("required group"))
    return lines[start + 1 :]


def test_files_are_as_sparks_writer_makes_them(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name = topic(3, name="_incoming")  # no name of a topic is in the way of the table's own files
    produce(name, 200, headers=[("h", b"1"), ("i", None)])
    produce(name, 100, first=200, key=lambda _: None, value=lambda n: None if n % 2 else b"")
    options: dict[str, Any] = {"bootstrap_servers": bootstrap_servers, "spark": spark}
    loaded = ottla_spark.load(name, f"parquet:{tmp_path}/table", headers=True, **options)
    assert (loaded.tally.rows, loaded.tally.files) == (300, 1)
    records = ottla_spark.read(spark, name, bootstrap_servers, includeHeaders="true")
    records.coalesce(1).write.parquet(str(tmp_path / "sparks"))

    (ours,), (sparks,) = parts(tmp_path / "table"), parts(tmp_path / "sparks")
    assert is_workers(ours)
    assert not is_workers(sparks)
    assert parquet_columns(ours) == parquet_columns(sparks)
    assert pq.read_schema(ours).remove_metadata() == pq.read_schema(sparks).remove_metadata()
    told, wanted_told = (spark_words(path) for path in (ours, sparks))
    assert told == wanted_told
    assert pq.read_metadata(ours).row_group(0).column(0).compression == "SNAPPY"
    rows, wanted = (spark.read.parquet(str(tmp_path / at)) for at in ("table", "sparks"))
    # Of other directories than a sink's Spark says that everything may be null.
    assert as_nullable(rows.schema) == wanted.schema
    assert [field.name for field in rows.schema if field.nullable] == ["key", "value", "headers"]
    assert rows.exceptAll(wanted).count() == wanted.exceptAll(rows).count() == 0
    assert rows.where("partition = 1 and offset >= 90").count() == 10


def test_workers_continue_a_table_of_sparks_sink(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = topic(2)
    table = tmp_path / "a table"
    options: dict[str, Any] = {"bootstrap_servers": bootstrap_servers, "spark": spark}
    produce(name, 40)
    with monkeypatch.context() as before:  # as loads were before workers wrote
        before.setattr(ParquetTableWriter, "worker_files", lambda *_: None)
        ottla_spark.load(
            name, f"parquet:{table}", max_records_per_batch=20, compact=True, **options
        )
    old = set(parts(table))
    assert not any(is_workers(path) for path in old)
    produce(name, 60, first=40)
    again = ottla_spark.load(name, f"parquet:{table}", max_records_per_batch=20, **options)
    assert (again.tally.rows, again.tally.batches, again.tally.files) == (60, 3, 3)
    assert sum(is_workers(path) for path in set(parts(table)) - old) == 3
    rows = spark.read.parquet(str(table))
    found = sorted((row.partition, row.offset) for row in rows.collect())
    assert found == [(partition, offset) for partition in range(2) for offset in range(50)]
    # Compaction takes files of both kinds together.
    ottla_spark.load(name, f"parquet:{table}", compact=True, **options)
    assert spark.read.parquet(str(table)).count() == 100
    assert len(SinkLog(HadoopStorage(spark), str(table)).files()) == 1


def test_a_worker_that_dies_in_the_middle_of_a_file(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name, table = topic(2), tmp_path / "table"
    incoming = table / "_incoming"
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap_servers,
        "spark": spark,
        "target_file_size": 1 << 20,
    }
    records = 0
    for _ in range(MOST_TRIES):
        produce(name, 60_000, value=lambda _: os.urandom(1000))
        records += 60_000
        with killer(incoming):
            try:
                ottla_spark.load(name, f"parquet:{table}", **options)
            except LoadError:
                break  # the worker died before it was done
    assert any(incoming.glob("part-*"))
    again = ottla_spark.load(name, f"parquet:{table}", **options)
    assert again.tally.leftovers > 0
    assert not any(incoming.glob("part-*"))
    found = spark.read.parquet(str(table)).select("partition", "offset").collect()
    assert sorted(map(tuple, found)) == [(p, n) for p in range(2) for n in range(records // 2)]
    listed = {Path(file.path).name for file in SinkLog(HadoopStorage(spark), str(table)).files()}
    assert {path.name for path in parts(table)} == listed
    sizes = sorted(path.stat().st_size for path in parts(table))
    assert (sizes[len(sizes) // 2] > 0.7e6, sizes[-1] < 1.3e6) == (True, True)


@contextmanager
def killer(incoming: Path) -> Iterator[None]:
    """Kill the Python workers of this process's Spark while they write the first file."""
    stopped = threading.Event()

    def kill() -> None:
        while not stopped.wait(0.002):
            if incoming.is_dir() and any(incoming.glob("part-*")):
                for process in workers():
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
                return

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def workers() -> list[psutil.Process]:
    daemons = [p for p in psutil.Process().children(recursive=True) if is_daemon(p)]
    return [process for process in daemons if process.parent() in daemons]


def is_daemon(process: psutil.Process) -> bool:
    try:
        return "pyspark.daemon" in process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):  # it ended meanwhile
        return False


def test_only_files_that_the_log_has_are_part_of_the_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = ParquetTableWriter(spark, str(tmp_path / "table"))
    incoming = tmp_path / "table" / "_incoming"
    incoming.mkdir(parents=True)
    for name in ("part-a.parquet", "part-of-a-failed-task.parquet"):
        spark.range(3).coalesce(1).write.parquet(str(tmp_path / name))
        parts(tmp_path / name)[0].rename(incoming / name)
    size = (incoming / "part-a.parquet").stat().st_size
    with pytest.raises(LoadError, match="the same files"):
        table.add_files(Batch("query", 0), {"part-a.parquet": size + 1})
    table.add_files(Batch("query", 0), {"part-a.parquet": size})
    assert table.last_batch("query") == 0
    assert parts(incoming) == []
    assert spark.read.parquet(str(tmp_path / "table")).count() == 3
    with pytest.raises(LoadError, match="has batch 0 already"):
        table.add_files(Batch("query", 0), {})
    # Killed after moving a file, before the log had it; and while writing the next one.
    for place in (tmp_path / "table", incoming):
        (place / "part-b.parquet").write_bytes(b"PAR1")
    assert spark.read.parquet(str(tmp_path / "table")).count() == 3
    assert table.clean(Batch("query", 1)) == 2
    assert [path.name for path in parts(tmp_path / "table")] == ["part-a.parquet"]


def test_which_loads_leave_the_files_to_spark(tmp_path: Path) -> None:
    def allowed(place: str = "file:/lake/t", settings: Any = (), **options: Any) -> bool:
        to = TableAddress("parquet", "/lake/t")
        given = LoadOptions("t", to, {}, **options)
        return can_use_worker_files(given, place, SETTINGS | dict(settings))

    assert allowed()
    assert allowed(headers=True, compact=True)
    assert allowed(settings={CODEC_SETTING: "ZSTD"})
    assert not allowed("s3a://lake/t")
    assert not allowed("hdfs://name:8020/lake/t")
    assert not allowed(format=ValueFormat.JSON)
    assert not allowed(partition_by=parse_partition_by(["day(timestamp)"]))
    assert not allowed(settings={CODEC_SETTING: "brotli"})
    assert not allowed(settings={OLD_LISTS_SETTING: "true"})
    assert not allowed(settings={"parquet.block.size": "1000000"})
