"""Everything a load needs before its first record: table, directory, schema, dead letters.

What can be refused is refused here, before anything is read or written.
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
from ottla_spark.loads.run.dead_letters import DeadLetterPlace, DeadLetterTable, DeadLetterTopic
from ottla_spark.loads.run.worker_check import check_workers
from ottla_spark.loads.schema.new_fields import field_types
from ottla_spark.loads.schema.table_columns import make_shape
from ottla_spark.loads.state.load_directory import HIDDEN, Workplace
from ottla_spark.loads.state.storage import Storage
from ottla_spark.loads.targets.address import Kind, absolute
from ottla_spark.loads.targets.parquet_worker_files import DirectWriting, direct_writing
from ottla_spark.loads.targets.registry import open_table
from ottla_spark.loads.targets.table_writer import Batch, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

NO_CHECKPOINT = "none yet"


@dataclass(frozen=True)
class Prepared:
    """A load that is ready to run; `leftovers` of killed attempts were removed.

    `direct` where workers write the files of the table.
    """

    workplace: Workplace
    table: Table
    dead_letters: DeadLetterPlace
    format: Format | None
    leftovers: int
    direct: DirectWriting | None


def prepare(
    spark: SparkSession,
    options: LoadOptions,
    sample_values: Callable[[], list[bytes]],
    say: Callable[[str], None],
    held: ExitStack,
) -> Prepared:
    """Make or check everything; what is locked is locked until `held` is closed."""
    storage = Storage(spark)
    table = open_table(spark, options)
    workplace = _workplace(storage, options, table)
    if workplace is not None:
        held.enter_context(workplace.lock())
    pinned = None if workplace is None else workplace.schema()
    values = sample_values() if _needs_sample(options, pinned) else []
    form = choose_format(options, pinned, values)
    shape = make_shape(options, None if form is None else form.schema)
    table.prepare(shape.schema, shape.partitions, widen=options.evolve)
    if workplace is None:
        workplace = _workplace(storage, options, table)
        assert workplace is not None
        held.enter_context(workplace.lock())
    workplace.claim(options.identity)
    if form is not None and form.schema != pinned:
        _pin(workplace, form.schema, pinned, say)
    dead_letters = _dead_letters(spark, options, table)
    places = [table.data_directory]
    if isinstance(dead_letters, DeadLetterTable):
        places.append(dead_letters.name)
    check_workers(spark, places)
    leftovers = _check_and_clean(workplace, table, dead_letters)
    direct = direct_writing(spark, options, table)
    return Prepared(workplace, table, dead_letters, form, leftovers, direct)


def _workplace(storage: Storage, options: LoadOptions, table: Table) -> Workplace | None:
    """Beside the data, or where it was said; None while the table has no place yet."""
    if options.checkpoint is not None:
        return Workplace(storage, absolute(options.checkpoint))
    if not table.data_directory:
        return None
    hidden = f"{table.data_directory}/{HIDDEN}"
    if options.to.kind is Kind.PARQUET:
        _refuse_second_load(storage, hidden, options.topic)
    return Workplace(storage, f"{hidden}/{options.topic}")


def _refuse_second_load(storage: Storage, hidden: str, topic: str) -> None:
    """The log of Spark's file sink numbers the batches of one load only."""
    for name in storage.children(hidden):
        if name != topic and storage.exists(f"{hidden}/{name}/load.json"):
            raise LoadUsageError(
                f"{hidden.removesuffix('/' + HIDDEN)} holds topic {name}: a Parquet table takes"
                " one topic; Delta and Iceberg tables take several"
            )


def _needs_sample(options: LoadOptions, pinned: StructType | None) -> bool:
    if options.format == "raw" or pinned is not None:
        return False
    return options.schema is None


def _pin(
    workplace: Workplace,
    schema: StructType,
    before: StructType | None,
    say: Callable[[str], None],
) -> None:
    workplace.pin(schema)
    say(f"schema, kept in {workplace.directory}/schema.json{'' if before is None else ' (wider)'}:")
    for name, kind in field_types(schema):
        say(f"  {name} {kind}")


def _dead_letters(spark: SparkSession, options: LoadOptions, table: Table) -> DeadLetterPlace:
    wanted = options.dead_letters
    if wanted.topic:
        return DeadLetterTopic(wanted.topic, options.client)
    path = wanted.path or f"{table.data_directory}-dead-letters"
    return DeadLetterTable(spark, path)


def _check_and_clean(workplace: Workplace, table: Table, dead_letters: DeadLetterPlace) -> int:
    """See that table and checkpoint belong together, then remove what killed attempts left."""
    query_id = workplace.checkpoint.query_id()
    last = table.last_batch(query_id or NO_CHECKPOINT)
    planned = workplace.checkpoint.planned_batch()
    if last is not None and (planned is None or planned < last):
        raise LoadUsageError(
            f"the table holds batch {last}, of which the checkpoint {workplace.checkpoint.path}"
            " knows nothing: it is older than the table, or another's. Going on would lose records"
        )
    if query_id is None:
        return 0
    next_batch = Batch(query_id, 0 if last is None else last + 1)
    return table.clean(next_batch) + dead_letters.clean(next_batch)
