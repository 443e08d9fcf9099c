"""Tables and paths of a pipeline file."""

from __future__ import annotations

from pathlib import Path

from ottla_spark.pipelines.spec.paths import why_unreadable, why_unwritable
from ottla_spark.pipelines.spec.table_place import TablePlace, parse_place
from ottla_spark.pipelines.spec.yaml_tree import Scalar


def test_relative_paths_start_at_the_file() -> None:
    text = Scalar(1, "delta:lake/orders")
    assert parse_place(text, Path("/p/o.yaml")) == TablePlace("delta", "/p/lake/orders", text)


def test_paths_with_a_scheme_are_left_alone() -> None:
    text = Scalar(1, "parquet:s3a://bucket/orders")
    place = parse_place(text, Path("/p/o.yaml"))
    assert isinstance(place, TablePlace)
    assert place.location == "s3a://bucket/orders"
    assert why_unwritable(place.location) is None
    assert why_unreadable(place.location) is None


def test_writable_directories(tmp_path: Path) -> None:
    assert why_unwritable(str(tmp_path)) is None
    assert why_unwritable(str(tmp_path / "not" / "yet" / "there")) is None


def test_unwritable_directories(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert why_unwritable(str(tmp_path / "file")) == f"{tmp_path}/file is a file, not a directory"
    assert "not a directory" in (why_unwritable(str(tmp_path / "file" / "below")) or "")
    assert why_unwritable("/x" * 10 + "y" * 5000) is not None


def test_readable_paths(tmp_path: Path) -> None:
    assert why_unreadable(str(tmp_path)) is None
    assert why_unreadable(str(tmp_path / "*.csv")) is None
    assert why_unreadable(str(tmp_path / "none")) == f"{tmp_path}/none does not exist"
