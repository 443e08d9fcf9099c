"""Files that a worker writes: all rows, sizes near the target, no files after a failure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="needs ottla[spark]")

from ottla.model.ids import ZERO_UUID
from pyspark_ottla.decode.column_arrays import arrow_schema
from pyspark_ottla.fetch.offset_range import OffsetRange
from pyspark_ottla.options.option_values import OptionError
from pyspark_ottla.options.source_options import stream_options
from pyspark_ottla.parquet.file_options import CODECS, OPTION, FileWriting, file_writing
from pyspark_ottla.parquet.file_writer import write_files
from pyspark_ottla.parquet.files_source import FILES, FilesReader, FilesSource
from pyspark_ottla.source.task_plan import tasks_for_files

MIB = 1 << 20
NAMES = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
CHANCE = random.Random(1)


@pytest.fixture
def writing(tmp_path: Path) -> FileWriting:
    return FileWriting(str(tmp_path / "incoming"), str(tmp_path / "note"), "snappy", 128 * MIB)


def batch(first: int, rows: int, value_bytes: int = 10) -> pa.RecordBatch:
    schema = arrow_schema(NAMES)
    columns = [
        [None if n % 7 == 0 else b"k%d" % n for n in range(first, first + rows)],
        [None if n % 5 == 0 else CHANCE.randbytes(value_bytes) for n in range(first, first + rows)],
        ["t"] * rows,
        [3] * rows,
        list(range(first, first + rows)),
        [1_700_000_000_000_000 + n * 1000 for n in range(first, first + rows)],
        [n % 2 for n in range(rows)],
        [[("h", b"1"), ("i", None)] if n % 3 == 0 else None for n in range(rows)],
    ]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def found(writing: FileWriting) -> list[Path]:
    return sorted(Path(writing.directory).iterdir())


def test_rows_come_back_as_they_were(writing: FileWriting) -> None:
    batches = [batch(0, 100), batch(100, 50)]
    (file,) = write_files(iter(batches), NAMES, writing)
    (path,) = found(writing)
    assert file == (path.name, path.stat().st_size, 150)
    assert path.name.startswith("part-")
    assert path.name.endswith(".snappy.parquet")
    assert pq.read_table(path).equals(pa.Table.from_batches(batches))
    footer = pq.read_metadata(path)
    assert footer.num_row_groups == 1
    offset = footer.row_group(0).column(NAMES.index("offset"))
    assert (offset.statistics.min, offset.statistics.max) == (0, 149)
    assert set(footer.metadata) == {
        b"org.apache.spark.version", b"org.apache.spark.sql.parquet.row.metadata"
    }  # fmt: skip


def test_files_end_near_the_wanted_size(writing: FileWriting) -> None:
    small = replace(writing, target_file_size=2 * MIB)
    batches = [batch(n * 500, 500, 1000) for n in range(25)]  # of 0.4 MB each, not compressible
    files = write_files(iter(batches), NAMES, small)
    assert sum(file.rows for file in files) == 25 * 500
    assert all(1.2 * MIB < file.size < 2.8 * MIB for file in files[:-1])
    assert {file.name for file in files} == {path.name for path in found(writing)}
    rows = pa.concat_tables(pq.read_table(path) for path in found(small))
    assert sorted(rows["offset"].to_pylist()) == list(range(25 * 500))


def test_no_rows_are_no_file(writing: FileWriting) -> None:
    assert write_files(iter([]), NAMES, writing) == []
    assert found(writing) == []


def test_a_failure_leaves_nothing_and_the_next_attempt_has_other_names(
    writing: FileWriting,
) -> None:
    small = replace(writing, target_file_size=1000)

    def broken() -> Iterator[pa.RecordBatch]:
        for number in range(3):
            yield batch(number * 100, 100, 100)
        assert len(found(writing)) > 3
        raise OSError("the broker is gone")

    with pytest.raises(OSError, match="the broker is gone"):
        write_files(broken(), NAMES, small)
    assert found(writing) == []
    first = write_files(iter([batch(0, 10)]), NAMES, writing)
    second = write_files(iter([batch(0, 10)]), NAMES, writing)
    assert first[0].name != second[0].name


@pytest.mark.parametrize("codec", CODECS)
def test_codecs(writing: FileWriting, codec: str) -> None:
    (file,) = write_files(iter([batch(0, 100)]), NAMES, replace(writing, codec=codec))
    (path,) = found(writing)
    used = pq.read_metadata(path).row_group(0).column(0).compression
    expected = {"none": "UNCOMPRESSED", "uncompressed": "UNCOMPRESSED", "lz4_raw": "LZ4"}
    assert used == expected.get(codec, codec.upper())
    assert file.rows == pq.read_table(path).num_rows


def test_the_option_is_a_loads_own(writing: FileWriting) -> None:
    assert file_writing(writing.option()) == writing
    for given in ({}, {OPTION: "x"}, {OPTION: "[]"}, {OPTION: '{"directory": "/x"}'}):
        with pytest.raises(OptionError, match="is for loads"):
            file_writing(given)
    source = FilesSource({"subscribe": "t", "kafka.bootstrap.servers": "x:1"})
    with pytest.raises(OptionError, match="use format ottla"):
        source.streamReader(FILES)


def test_what_a_file_takes_is_noted(writing: FileWriting) -> None:
    assert writing.rows_a_file() is None
    writing.note_rows_a_file(1234)
    assert writing.rows_a_file() == 1234
    Path(writing.note).write_text("")
    assert writing.rows_a_file() is None


def test_a_small_batch_is_written_by_few_tasks(writing: FileWriting) -> None:
    options = stream_options({"subscribe": "t", "kafka.bootstrap.servers": "x:1"})
    reader = FilesReader(options, writing)
    ranges = [OffsetRange("t", ZERO_UUID, partition, 0, 100_000) for partition in range(4)]
    assert len(reader.plan(ranges)) == 4
    writing.note_rows_a_file(1_000_000)
    (task,) = reader.plan(ranges)
    assert list(task.ranges) == ranges
    writing.note_rows_a_file(300_000)
    assert len(reader.plan(ranges)) == 4
    assert reader.plan([]) == []
    assert tasks_for_files(1_500_000, 8, 1_000_000) == 2
