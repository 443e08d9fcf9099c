"""Finds out whether an Iceberg table was rolled back behind the last snapshot of a load.

A rollback makes an older snapshot the current one. The properties of the table stay as they are.
So the number of the last batch does not tell whether the table still has its rows; the ancestors
of the current snapshot do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


def has_snapshot(metadata: TableMetadata, snapshot_id: int, sequence_number: int) -> bool:
    """Return whether the current snapshot is this one or was made from it.

    Expired snapshots are not listed any more. If all ancestors that are listed are newer than the
    wanted snapshot, and it is not listed, it has expired, and its rows are there.
    """
    current = metadata.current_snapshot()
    if current is None:
        return False
    while (current.sequence_number or 0) >= sequence_number:
        if current.snapshot_id == snapshot_id:
            return True
        parent = current.parent_snapshot_id
        ancestor = None if parent is None else metadata.snapshot_by_id(parent)
        if ancestor is None:
            return metadata.snapshot_by_id(snapshot_id) is None
        current = ancestor
    return False
