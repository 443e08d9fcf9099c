"""Whether a table still has the last batch of a load, by the history of the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs ottla[spark]")

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table as IcebergTable

from ottla_spark.loads.targets.delta_lineage import NOTE, lost_batch
from ottla_spark.loads.targets.iceberg_lineage import has_snapshot

ROW: Any = pa.table({"n": [1]})


def delta_batch(path: Path, query_id: str, batch: int) -> None:
    note = {NOTE: json.dumps({"topic": "t", "query_id": query_id, "batch": batch})}
    properties = CommitProperties(custom_metadata=note)
    write_deltalake(path, ROW, mode="append", commit_properties=properties)


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    """Return a table: versions 0 to 2 are batches of `mine`, version 3 is of somebody else."""
    for batch in range(3):
        delta_batch(tmp_path / "table", "mine", batch)
    delta_batch(tmp_path / "table", "other", 0)
    return tmp_path / "table"


def test_a_table_that_was_not_restored_has_the_batch(delta: Path) -> None:
    assert not lost_batch(DeltaTable(delta), "mine")
    DeltaTable(delta).optimize.compact()
    assert not lost_batch(DeltaTable(delta), "mine")


@pytest.mark.parametrize(("version", "expected"), [(0, True), (1, True), (2, False)])
def test_a_restore_loses_what_came_after_its_version(
    delta: Path, version: int, expected: bool
) -> None:
    DeltaTable(delta).restore(version)
    assert lost_batch(DeltaTable(delta), "mine") is expected
    delta_batch(delta, "other", 1)
    assert lost_batch(DeltaTable(delta), "mine") is expected


def test_a_restore_that_is_undone_loses_nothing(delta: Path) -> None:
    DeltaTable(delta).restore(0)
    DeltaTable(delta).restore(3)
    assert not lost_batch(DeltaTable(delta), "mine")


def test_a_restore_to_a_time_counts_as_a_loss(delta: Path) -> None:
    commits = DeltaTable(delta).history(None)
    restore: dict[str, Any] = {
        "version": 4, "operation": "RESTORE", "operationParameters": {"timestamp": "2026-01-01"},
    }  # fmt: skip

    class Table:
        def history(self, limit: int | None) -> list[dict[str, Any]]:
            return [restore, *commits][:limit]

    assert lost_batch(Table(), "mine")  # type: ignore[arg-type]


@pytest.fixture
def iceberg(tmp_path: Path) -> IcebergTable:
    catalog = load_catalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", ROW.schema)
    for _ in range(4):
        table.append(ROW)
    return table


def ids(table: IcebergTable) -> list[tuple[int, int]]:
    return [(each.snapshot_id, each.sequence_number or 0) for each in table.metadata.snapshots]


def test_the_snapshots_that_a_table_was_made_from(iceberg: IcebergTable) -> None:
    assert all(has_snapshot(iceberg.metadata, *each) for each in ids(iceberg))


def test_a_rollback_loses_later_snapshots(iceberg: IcebergTable) -> None:
    first, second, third, _ = ids(iceberg)
    iceberg.manage_snapshots().rollback_to_snapshot(second[0]).commit()
    for _ in range(2):  # before and after another commit
        assert has_snapshot(iceberg.metadata, *first)
        assert has_snapshot(iceberg.metadata, *second)
        assert not has_snapshot(iceberg.metadata, *third)
        iceberg.append(ROW)


def test_an_expired_snapshot_is_not_lost(iceberg: IcebergTable) -> None:
    first, second, third, _ = ids(iceberg)
    expire = iceberg.maintenance.expire_snapshots()
    expire.by_ids([first[0], second[0]]).commit()
    assert has_snapshot(iceberg.metadata, *first)
    assert has_snapshot(iceberg.metadata, *second)
    # It was rolled back before, and then expired: its number is higher than that of the current.
    iceberg.manage_snapshots().rollback_to_snapshot(third[0]).commit()
    assert not has_snapshot(iceberg.metadata, 12345, third[1] + 1)


def test_a_table_without_snapshots_has_none(tmp_path: Path) -> None:
    catalog = load_catalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("db")
    assert not has_snapshot(catalog.create_table("db.t", ROW.schema).metadata, 1, 1)
