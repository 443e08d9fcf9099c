"""Loads one micro-batch: decodes the records, writes and commits the rows, writes dead letters.

First the table commits the rows with the batch's number. Then the dead letters get the records
that do not fit, also with the number. Spark marks a batch as done after both. When Spark repeats
a batch after a crash, the loader asks the table and the dead letters separately for the number, so
the process may be killed at any moment.

With `worker_files` the rows of a batch are files that workers wrote. All records fit then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla_spark.loads.formats.format import REASON, UNKNOWN, Format, Learned
from ottla_spark.loads.options.load_options import LoadOptions
from ottla_spark.loads.run.dead_letters import DeadLetterSink
from ottla_spark.loads.run.file_size import FileSize
from ottla_spark.loads.run.tally import Tally
from ottla_spark.loads.schema.field_types import field_types
from ottla_spark.loads.schema.new_fields import find_new_fields
from ottla_spark.loads.schema.partition_fit import CANNOT_BE
from ottla_spark.loads.schema.table_columns import (
    TableColumns,
    table_columns,
    taken_names,
)
from ottla_spark.loads.state.load_directory import LoadDirectory
from ottla_spark.loads.targets.table_check import check_batch
from ottla_spark.loads.targets.table_writer import (
    DELETED,
    MISFITS,
    RECORDS,
    Added,
    Batch,
    TableWriter,
    WorkerFiles,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

COMPACT_EVERY = 20
NO_VALUE = "the value is null: tombstones need --upsert"
NO_KEY = "the key is null: --upsert needs a key"
_FIRST_REASON = "_ottla_first_reason"


class BatchLoader:
    """Spark calls it with each batch, in order, on one thread."""

    def __init__(
        self,
        options: LoadOptions,
        directory: LoadDirectory,
        table: TableWriter,
        dead_letters: DeadLetterSink,
        form: Format | None,
        say: Callable[[str], None],
        worker_files: WorkerFiles | None = None,
        record_size: float = 0,
    ) -> None:
        self.tally = Tally()
        self.failure: BaseException | None = None
        self.worker_files = worker_files
        self._options = options
        self._directory = directory
        self._table = table
        self._dead_letters = dead_letters
        self._format = form
        self._say = say
        self._file_size = FileSize(options.target_file_size, record_size)
        self._has_failed = directory.failures() > 0
        self._columns = table_columns(options, None if form is None else form.schema)

    @property
    def columns(self) -> TableColumns:
        """The columns of the rows that are written now."""
        return self._columns

    def __call__(self, records: DataFrame, number: int) -> None:
        """Load one batch. An exception is kept in `failure`, because Spark shortens its message."""
        try:
            self._load(records, number)
        except BaseException as error:
            self.failure = error
            raise

    def _load(self, records: DataFrame, number: int) -> None:
        query_id = self._directory.checkpoint.query_id()
        assert query_id is not None, "Spark names a checkpoint before its first batch"
        self._directory.keep_plan()
        batch = Batch(query_id, number)
        if check_batch(batch, self._table):
            self._repeat_dead_letters(batch, records)
            return
        if self._options.evolve and self._format is not None:
            self._add_new_fields(records)
        if self.worker_files is None:
            added, misfits = self._write(batch, records)
        else:
            added, misfits = self.worker_files.add(batch, records), 0
        if misfits:
            self._dead_letters.put(batch, self._misfits(records))
        self._count(added, misfits)
        if self._has_failed:
            self._directory.clear_failures()
            self._has_failed = False
        if not self._options.evolve and added.measured.get("unknown") and self._format is not None:
            self._report_new_fields(records)
        if self._options.compact and (number + 1) % COMPACT_EVERY == 0:
            self.compact()

    def compact(self) -> None:
        """Merge small files into large ones."""
        self.tally.compacted_files += self._table.compact(self._options.target_file_size)

    def _write(self, batch: Batch, records: DataFrame) -> tuple[Added, int]:
        from pyspark.sql import Observation

        measures = Observation(f"ottla-{batch.number}")
        decoded = self._observed(self._decoded(records), measures)
        good = decoded.where(f"{REASON} is null") if REASON in decoded.columns else decoded
        if self._options.upsert:
            rows = self._last_of_each_key(good)
            added = self._table.upsert(batch, rows, measures, [self._columns.key])
        else:
            rows = self._columns.rows(good)
            fewer = self._fewer_tasks(records, batch)
            rows = rows if fewer is None else rows.coalesce(fewer)
            added = self._table.add(batch, rows, measures, self._file_size.most_rows_a_file())
        misfits = added.measured.get(MISFITS, 0)
        assert isinstance(misfits, int)
        return added, misfits

    def _decoded(self, records: DataFrame) -> DataFrame:
        """Add value and reason to the records. Raw records may need no reason."""
        from pyspark.sql import functions as F

        if not self._may_misfit:
            return records
        if self._format is None:
            no_key = F.col("key").isNull() & F.lit(self._options.upsert)
            reason = self._columns.unfit_partition(F.when(no_key, F.lit(NO_KEY)))
            return records.withColumn(REASON, reason)
        decoded = self._format.decode(records)
        return decoded.withColumn(REASON, self._reason(F.col(REASON)))

    def _reason(self, of_format: Column) -> Column:
        from pyspark.sql import functions as F

        of_value = self._columns.unfit_partition(of_format)
        if self._options.upsert:
            no_key = F.when(F.col("key").isNull(), F.lit(NO_KEY))
            return no_key.when(F.col("value").isNotNull(), of_value)
        return F.when(F.col("value").isNull(), F.lit(NO_VALUE)).otherwise(of_value)

    def _observed(self, decoded: DataFrame, measures: Observation) -> DataFrame:
        """Count the records as they are written. This also keeps Spark from decoding them twice."""
        from pyspark.sql import functions as F

        counts = [F.count(F.lit(1)).alias(RECORDS)]
        if REASON in decoded.columns:
            counts.append(F.count(F.col(REASON)).alias(MISFITS))
        if UNKNOWN in decoded.columns:
            unknown = F.col("value").isNotNull() & F.col(REASON).isNull() & (F.size(UNKNOWN) > 0)
            counts.append(F.count_if(unknown).alias("unknown"))
        return decoded.observe(measures, *counts)

    def _last_of_each_key(self, good: DataFrame) -> DataFrame:
        """Return the last record of each key: by offset, and by time across partitions."""
        from pyspark.sql import functions as F

        deleted = F.col("value").isNull().alias(DELETED)
        row = F.struct(*self._columns.expressions(), deleted).alias("row")
        records = good.select("key", "partition", "offset", "timestamp", row)
        kept = F.max_by(F.struct("row", "timestamp"), "offset").alias("kept")
        in_partition = records.groupBy("key", "partition").agg(kept)
        last = F.max_by("kept.row", F.struct("kept.timestamp", "partition")).alias("row")
        return in_partition.groupBy("key").agg(last).select("row.*")

    def _fewer_tasks(self, records: DataFrame, batch: Batch) -> int | None:
        """Return how many tasks should write a small batch; None for as many as read it."""
        planned = self._directory.checkpoint.planned_records(batch.number)
        if planned is None:
            return None
        tasks = records._jdf.queryExecution().toRdd().getNumPartitions()
        wanted = self._file_size.tasks(planned, tasks)
        return wanted if wanted < tasks else None

    def _misfits(self, records: DataFrame) -> DataFrame:
        misfits = self._decoded(records).where(f"{REASON} is not null")
        return misfits if self._format is None else self._explained(misfits, self._format)

    def _explained(self, misfits: DataFrame, form: Format) -> DataFrame:
        """Replace the reasons of the format by its explanations."""
        from pyspark.sql import functions as F

        first = F.col(_FIRST_REASON)
        is_explained = first.isin(NO_KEY, NO_VALUE) | first.contains(f": {CANNOT_BE} ")
        explained = form.explain(misfits.withColumn(_FIRST_REASON, F.col(REASON)))
        reason = F.when(is_explained, first).otherwise(F.col(REASON))
        return explained.withColumn(REASON, reason).drop(_FIRST_REASON)

    def _repeat_dead_letters(self, batch: Batch, records: DataFrame) -> None:
        """Write the dead letters of a batch that the table has since before a crash."""
        if self._dead_letters.holds(batch) or not self._may_misfit:
            return
        misfits = self._misfits(records)
        if not misfits.isEmpty():
            self._dead_letters.put(batch, misfits)

    @property
    def _may_misfit(self) -> bool:
        return self._format is not None or self._options.upsert or bool(self._columns.partitions)

    def _add_new_fields(self, records: DataFrame) -> None:
        """Add the new fields of this batch to the schema and the table, before it is written."""
        found = self._new_fields(records)
        if found is None:
            return
        names, learned = found
        if learned.fields.fields:
            self._directory.save_schema(learned.format.schema)
            self._columns = table_columns(self._options, learned.format.schema)
            self._table.widen(self._columns.schema)
        for name, kind in field_types(learned.fields):
            self.tally.added_fields[name] = kind
            self._say(f"new field {name} {kind}: added")
        self._report_left_out(learned)
        self._format = learned.format.ignoring(names)

    def _report_new_fields(self, records: DataFrame) -> None:
        """Report new fields once. They are not loaded."""
        assert self._format is not None
        found = self._new_fields(records)
        if found is None:
            return
        names, learned = found
        for name, kind in field_types(learned.fields):
            self.tally.new_fields[name] = kind
            self._say(f"new field {name} {kind}: not loaded (--evolve adds it)")
        self._report_left_out(learned)
        self._format = self._format.ignoring(names)

    def _new_fields(self, records: DataFrame) -> tuple[list[str], Learned] | None:
        assert self._format is not None
        return find_new_fields(self._decoded(records), self._format, taken_names(self._options))

    def _report_left_out(self, learned: Learned) -> None:
        for name, why in learned.left_out.items():
            self.tally.new_fields[name] = ""
            self._say(f"new field {name}: not loaded, because {why}")

    def _count(self, added: Added, misfits: int) -> None:
        records = added.measured.get(RECORDS, 0)
        assert isinstance(records, int)
        self.tally.records += records
        self.tally.dead_letters += misfits
        self.tally.files += added.files
        self.tally.size += added.size
        self.tally.batches += 1
        if not self._options.upsert:
            self._file_size.learn(records - misfits, added.size)
        if self.worker_files is not None:
            self.worker_files.set_rows_per_file(self._file_size.most_rows_a_file())
