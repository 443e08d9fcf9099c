"""Checks that a table still has the rows that its checkpoint says were loaded.

Spark's checkpoint says which batches are done. If the table was dropped, emptied or rolled back
since then, a load would continue after these batches, and their rows would stay missing.
"""

from __future__ import annotations

from ottla_spark.loads.errors import LoadUsageError, RolledBack
from ottla_spark.loads.state.checkpoint import Checkpoint
from ottla_spark.loads.targets.table_writer import Batch, TableWriter

NO_CHECKPOINT = "none yet"


def check_table(checkpoint: Checkpoint, table: TableWriter) -> int | None:
    """Return the last batch in the table, when a run starts.

    Raise RolledBack if the table lacks batches that the checkpoint has, and LoadUsageError if
    the checkpoint lacks batches that the table has.
    """
    last = table.last_batch(checkpoint.query_id() or NO_CHECKPOINT)
    _check_last(last, checkpoint.finished_batch())
    planned = checkpoint.planned_batch()
    if last is not None and (planned is None or planned < last):
        raise LoadUsageError(
            f"the table has batch {last}, but the checkpoint {checkpoint.path} does not:"
            " it is older than the table, or belongs to another one. Continuing would lose"
            " records. Name the right one with --checkpoint, or use another table"
        )
    return last


def check_batch(batch: Batch, table: TableWriter) -> bool:
    """Return whether the table has this batch; raise RolledBack if it lacks the one before it."""
    last = table.last_batch(batch.query_id)
    _check_last(last, batch.number - 1 if batch.number else None)
    return last is not None and last >= batch.number


def check_files(table: TableWriter) -> None:
    """Raise RolledBack if files of the table are gone. This lists all files."""
    missing = table.missing_files()
    if missing:
        raise RolledBack(
            f"files of the table {table.data_directory} are gone: {len(missing)}, such as"
            f" {missing[0].rpartition('/')[2]}"
        )


def _check_last(last: int | None, finished: int | None) -> None:
    """Raise RolledBack if the last batch in the table is before the last one that is finished."""
    if finished is not None and (last is None or last < finished):
        has = "none of the rows" if last is None else f"only batches up to {last}"
        raise RolledBack(
            f"the checkpoint says that batch {finished} was loaded, but the table has {has}: it was"
            " dropped, emptied, or replaced by an older copy or another table"
        )
