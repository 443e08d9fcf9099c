"""The files of a task in an object store, with a local directory in its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

from ottla_spark.loads.targets import arrow_files
from ottla_spark.loads.targets.arrow_files import NULL_PARTITION, TaskFiles


@pytest.fixture(autouse=True)
def _local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("a=x%2Fy", f"a={NULL_PARTITION}", "a="):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(arrow_files, "locate", lambda path: (LocalFileSystem(), path))


def rows(numbers: list[int], folders: list[str | None] | None = None) -> Any:
    columns: dict[str, object] = {"n": numbers}
    if folders is not None:
        columns["_ottla_folder_0"] = pa.array(folders, pa.string())
    return pa.table(columns)


def read(tmp_path: Path, names: list[str]) -> list[list[int]]:
    return [pq.ParquetFile(tmp_path / name).read()["n"].to_pylist() for name in names]


def test_rows_of_a_partition_share_a_file(tmp_path: Path) -> None:
    files = TaskFiles(str(tmp_path), ["a"], 0)
    files.add(rows([1, 2, 3, 4], ["x/y", None, "", "x/y"]))
    files.add(rows([5, 6], [None, "x/y"]))
    names, sizes = files.finish()
    found = dict(
        zip([name.partition("/")[0] for name in names], read(tmp_path, names), strict=True)
    )
    assert found == {"a=x%2Fy": [1, 4, 6], f"a={NULL_PARTITION}": [2, 5], "a=": [3]}
    assert sizes == [(tmp_path / name).stat().st_size for name in names]


def test_batches_become_one_row_group_and_files_end_at_their_rows(tmp_path: Path) -> None:
    files = TaskFiles(str(tmp_path), [], 4)
    for first in range(0, 6, 2):
        files.add(rows([first, first + 1]))
    names, _ = files.finish()
    assert read(tmp_path, names) == [[0, 1, 2, 3], [4, 5]]
    assert pq.ParquetFile(tmp_path / names[0]).num_row_groups == 1


def test_memory_and_open_files_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_files, "ROW_GROUP_BYTES", 1)
    monkeypatch.setattr(arrow_files, "MOST_OPEN_FILES", 1)
    files = TaskFiles(str(tmp_path), ["a"], 0)
    for number, folder in enumerate(["x/y", "x/y", None, "x/y"]):
        files.add(rows([number], [folder]))
    names, _ = files.finish()
    assert read(tmp_path, names) == [[0, 1], [2], [3]]
    assert pq.ParquetFile(tmp_path / names[0]).num_row_groups == 2


def test_a_task_without_rows_has_no_files(tmp_path: Path) -> None:
    files = TaskFiles(str(tmp_path), [], 0)
    files.add(rows([]))
    assert files.finish() == ([], [])
