"""Sets up a load: table, load directory, schema, dead letters.

All checks run here, before the first record is read or written.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.formats.format import Format
from ottla_spark.loads.formats.format_choice import choose_format
from ottla_spark.loads.options.load_options import LoadOptions
from ottla_spark.loads.run.dead_letters import (
    DeadLetterSink,
    DeadLetterTable,
    DeadLetterTopic,
    DeltaDeadLetters,
)
from ottla_spark.loads.run.worker_check import check_workers
from ottla_spark.loads.schema.field_types import field_types
from ottla_spark.loads.schema.table_columns import table_columns
from ottla_spark.loads.state.load_directory import HIDDEN, LoadDirectory
from ottla_spark.loads.state.object_store import is_object_store
from ottla_spark.loads.state.storage import Storage, storage_of
from ottla_spark.loads.targets.address import absolute
from ottla_spark.loads.targets.registry import several_topics_schemes
from ottla_spark.loads.targets.table_check import check_files, check_table
from ottla_spark.loads.targets.table_writer import Batch, TableWriter, WorkerFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class LoadSetup:
    """A load that is ready to run.

    `leftovers` counts the removed files of killed attempts. `worker_files` is set if workers
    write the files of the table.
    """

    directory: LoadDirectory
    table: TableWriter
    dead_letters: DeadLetterSink
    format: Format | None
    leftovers: int
    worker_files: WorkerFiles | None


def prepare(
    spark: SparkSession,
    options: LoadOptions,
    sample_values: Callable[[], list[bytes]],
    say: Callable[[str], None],
    held: ExitStack,
) -> LoadSetup:
    """Create or check everything. Closing `held` releases the lock."""
    to = options.to
    table = to.target.open(
        spark, to.location, options.topic, catalog=options.catalog, compacted=options.compact
    )
    directory = load_directory(spark, options, table)
    query_id = None
    if directory is not None:
        query_id = directory.checkpoint.query_id()
        _take(directory, table, options, held)
    saved = None if directory is None else directory.schema()
    values = sample_values() if _needs_sample(options, saved) else []
    form = choose_format(options, saved, values)
    columns = table_columns(options, None if form is None else form.schema)
    table.prepare(columns.schema, columns.partitions, widen=options.evolve)
    if directory is None:
        directory = load_directory(spark, options, table)
        assert directory is not None
        try:
            _take(directory, table, options, held)
        except LoadUsageError:
            table.drop_if_new()
            raise
    directory.claim(options.identity)
    directory.set_schema_digest(options.schema_digest)
    if form is not None and form.schema != saved:
        _save_schema(directory, form.schema, saved, say)
    dead_letters = _dead_letters(spark, options, table, query_id)
    if options.reset:
        dead_letters.reset()
    places = [table.data_directory]
    if isinstance(dead_letters, DeadLetterTable):
        places.append(dead_letters.name)
    check_workers(spark, places)
    leftovers = _check_and_clean(directory, table, dead_letters)
    _plan_again(directory, table, options)
    worker_files = table.worker_files(options)
    return LoadSetup(directory, table, dead_letters, form, leftovers, worker_files)


def _take(
    directory: LoadDirectory, table: TableWriter, options: LoadOptions, held: ExitStack
) -> None:
    """Lock the directory, start over if asked, and check that the table belongs to it."""
    held.enter_context(directory.lock())
    if options.reset:
        _reset(directory, table)
    check_table(directory.checkpoint, table)
    check_files(table)


def _reset(directory: LoadDirectory, table: TableWriter) -> None:
    """Forget the checkpoint, then delete the rows.

    A load that is killed in between finds rows of another checkpoint, and refuses to continue.
    """
    others = table.other_writers()
    if others:
        raise LoadUsageError(
            f"--reset deletes all rows of the table, and {', '.join(others)} also wrote to it:"
            " use another table"
        )
    directory.clear()
    table.reset()


def load_directory(
    spark: SparkSession | None, options: LoadOptions, table: TableWriter
) -> LoadDirectory | None:
    """Return --checkpoint, or a directory in the table; None if the table has none yet."""
    if options.checkpoint is not None:
        place = absolute(options.checkpoint)
        return LoadDirectory(storage_of(spark, place), place)
    if not table.data_directory:
        return None
    hidden = f"{table.data_directory}/{HIDDEN}"
    storage = storage_of(spark, hidden)
    if not options.to.target.takes_several_topics:
        _check_only_topic(storage, hidden, options)
    return LoadDirectory(storage, f"{hidden}/{options.topic}")


def _check_only_topic(storage: Storage, hidden: str, options: LoadOptions) -> None:
    """Raise LoadUsageError if the table has another topic."""
    for name in storage.children(hidden):
        if name != options.topic and storage.exists(f"{hidden}/{name}/load.json"):
            raise LoadUsageError(
                f"{hidden.removesuffix('/' + HIDDEN)} already has topic {name}, and a"
                f" {options.to.scheme}: table takes one topic. Use another table, or"
                f" {several_topics_schemes()}, which take several topics"
            )


def _needs_sample(options: LoadOptions, saved: StructType | None) -> bool:
    if options.format == "raw" or saved is not None:
        return False
    return options.schema is None


def _save_schema(
    directory: LoadDirectory,
    schema: StructType,
    before: StructType | None,
    say: Callable[[str], None],
) -> None:
    directory.save_schema(schema)
    changed = "" if before is None else " (new fields)"
    say(f"schema, saved in {directory.directory}/schema.json{changed}:")
    for name, kind in field_types(schema):
        say(f"  {name} {kind}")


def _dead_letters(
    spark: SparkSession, options: LoadOptions, table: TableWriter, query_id: str | None
) -> DeadLetterSink:
    """Return where dead letters go. A Parquet table takes those of one load.

    `query_id` is the id of the load's checkpoint, before --reset. Without one, a load that starts
    over takes the table for its own.
    """
    wanted = options.dead_letters
    if wanted.topic:
        return DeadLetterTopic(wanted.topic, options.client)
    path = wanted.path or f"{table.data_directory}-dead-letters"
    if wanted.is_delta or is_object_store(path):
        return DeltaDeadLetters(spark, path, options.topic)
    ours = DeadLetterTable(spark, path)
    if not ours.is_of_another(query_id) or (options.reset and query_id is None):
        return ours
    beside = DeadLetterTable(spark, f"{path}-{options.topic}")
    if wanted.path or beside.is_of_another(query_id):
        raise LoadUsageError(
            f"{path} has the dead letters of another load: choose another place with --dead-letters"
        )
    return beside


def _check_and_clean(
    directory: LoadDirectory, table: TableWriter, dead_letters: DeadLetterSink
) -> int:
    """Check that table and checkpoint belong together, then remove files of killed attempts."""
    last = check_table(directory.checkpoint, table)
    query_id = directory.checkpoint.query_id()
    if query_id is None:
        return 0
    next_batch = Batch(query_id, 0 if last is None else last + 1)
    return table.clean(next_batch) + dead_letters.clean(next_batch)


def _plan_again(directory: LoadDirectory, table: TableWriter, options: LoadOptions) -> None:
    """Forget the plan of a batch that an earlier run did not load, and count the failure.

    The batch may have been too large, and Spark would repeat it for ever. The first batch of a
    load from the latest offsets stays: it is what remembers these offsets.
    """
    checkpoint = directory.checkpoint
    planned = checkpoint.planned_batch()
    if planned is None or planned == checkpoint.finished_batch():
        return
    query_id = checkpoint.query_id()
    last = None if query_id is None else table.last_batch(query_id)
    if last is not None and last >= planned:
        return  # only the end of the batch is missing
    directory.add_failure()
    if planned or options.starting_offsets == "earliest":
        checkpoint.forget_plan(planned)
