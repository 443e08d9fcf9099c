"""Answers before Spark starts, in about a second: wrong options, and loads with nothing to do.

Nothing is changed here. Whenever something is not certain, Spark decides.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.formats.ddl_schema import check_spark_schema
from ottla_spark.loads.formats.format_choice import choose_format
from ottla_spark.loads.options.load_options import LoadOptions, Once
from ottla_spark.loads.options.start_option import check_start
from ottla_spark.loads.options.value_format import ValueFormat
from ottla_spark.loads.run.load_run import connect
from ottla_spark.loads.run.result import LoadResult
from ottla_spark.loads.run.topic_sample import TopicOffsets, topic_offsets
from ottla_spark.loads.schema.table_columns import table_columns
from ottla_spark.loads.state.checkpoint import Checkpoint
from ottla_spark.loads.state.load_directory import HIDDEN, LoadDirectory
from ottla_spark.loads.state.storage import local_path, storage_of
from ottla_spark.loads.targets.address import absolute
from ottla_spark.loads.targets.target import Glance


def early_answer(options: LoadOptions) -> LoadResult | None:
    """Return the result of a load that has nothing to do; None if Spark is needed.

    Raise LoadUsageError for options that cannot work, and ClientError if the topic cannot be
    reached.
    """
    began = time.monotonic()
    with connect(options) as client:
        offsets = topic_offsets(client, options)
    _check_columns(options)
    check_place(options.to.location)
    table = options.to.target.glance(options.to.location, options.topic, catalog=options.catalog)
    if table is None:
        return None
    if is_new(options, table):
        check_start(options.starting_offsets, options.topic, offsets.latest)
    if not has_nothing_new(options, table, offsets):
        return None
    return LoadResult(options, time.monotonic() - began)


def has_nothing_new(options: LoadOptions, table: Glance, offsets: TopicOffsets) -> bool:
    """Return whether the table certainly has every record; raise LoadUsageError for a mismatch."""
    directory = _directory(options, table)
    if directory is None or not directory.is_claimed:
        return False
    if not options.reset:
        directory.check_identity(options.identity)
    if not isinstance(options.when, Once) or options.compact or options.reset:
        return False
    return (
        directory.schema_digest() == options.schema_digest
        and offsets.topic_id in {"", directory.topic_id()}
        and not table.has_leftovers
        and _is_finished(directory.checkpoint, table)
        and _reaches(directory.checkpoint, options.topic, offsets)
    )


def is_new(options: LoadOptions, table: Glance) -> bool:
    """Return whether this is the first run of a load. Later ones do not start at --from."""
    directory = _directory(options, table)
    return directory is None or options.reset or directory.checkpoint.planned_batch() is None


def check_place(location: str) -> None:
    """Raise LoadUsageError if a table on this machine can certainly not be written there."""
    place = local_path(location)
    if place is None:
        return
    path = Path(place)
    there = next(each for each in (path, *path.parents) if each.exists())
    if not there.is_dir():
        raise LoadUsageError(f"cannot write to {path}: {there} is not a directory")
    if not os.access(there, os.W_OK | os.X_OK):
        raise LoadUsageError(f"cannot write to {path}: you may not write to {there}")


def _check_columns(options: LoadOptions) -> None:
    """Raise LoadUsageError if --schema is wrong, or the columns are known and --partition-by is."""
    if options.format is ValueFormat.RAW:
        table_columns(options, None)
    elif options.format is ValueFormat.JSON:
        if options.schema is not None:
            check_spark_schema(options.schema)
    elif options.registry is None:
        form = choose_format(options, None, [])
        table_columns(options, None if form is None else form.schema)


def _directory(options: LoadOptions, table: Glance) -> LoadDirectory | None:
    if options.checkpoint is not None:
        place = absolute(options.checkpoint)
    elif table.data_directory:
        place = f"{table.data_directory}/{HIDDEN}/{options.topic}"
    else:
        return None
    return LoadDirectory(storage_of(None, place), place)


def _is_finished(checkpoint: Checkpoint, table: Glance) -> bool:
    """Return whether all planned batches are done, and the table has the last one."""
    query_id, planned = checkpoint.query_id(), checkpoint.planned_batch()
    if query_id is None or planned is None or not table.data_directory:
        return False
    return planned == checkpoint.finished_batch() and planned == table.last_batch(query_id)


def _reaches(checkpoint: Checkpoint, topic: str, offsets: TopicOffsets) -> bool:
    """Return whether the checkpoint is exactly at the end of every partition with records."""
    done = checkpoint.positions()
    for partition, end in offsets.latest.items():
        position = done.get((topic, str(partition)))
        if position is None and end == offsets.earliest[partition] == 0:
            continue
        if position != end:
            return False
    return True
