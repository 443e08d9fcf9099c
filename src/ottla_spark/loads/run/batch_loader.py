"""What is done with a micro-batch: decode, divide, write, commit; the same again after a crash.

Order of events: rows are committed to the table with the batch's number; then what did not fit
goes to the dead letters, with the number too. Spark forgets a batch only after both. A batch
that comes again is asked of the table and of the dead letters separately, so it does not matter
where the process was killed.

With `direct` the rows that come are files which workers wrote of the records; all fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla_spark.loads.formats.format import NEWS, REASON, Format
from ottla_spark.loads.options.load_options import LoadOptions
from ottla_spark.loads.run.dead_letters import DeadLetterPlace
from ottla_spark.loads.run.file_size import Sizing
from ottla_spark.loads.run.tally import Tally
from ottla_spark.loads.schema.new_fields import field_types, find_news
from ottla_spark.loads.schema.table_columns import Shape, make_shape
from ottla_spark.loads.state.load_directory import Workplace
from ottla_spark.loads.targets.parquet_worker_files import DirectWriting
from ottla_spark.loads.targets.table_writer import DELETED, MISFITS, RECORDS, Added, Batch, Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

COMPACT_EVERY = 20
NO_VALUE = "the value is null: a tombstone has no place in a table without --upsert"
NO_KEY = "the key is null: --upsert needs one"


class BatchLoader:
    """Called by Spark with each batch, in order, by one thread."""

    def __init__(
        self,
        options: LoadOptions,
        workplace: Workplace,
        table: Table,
        dead_letters: DeadLetterPlace,
        form: Format | None,
        tell: Callable[[str], None],
        direct: DirectWriting | None = None,
    ) -> None:
        self.tally = Tally()
        self.failure: BaseException | None = None
        self.direct = direct
        self._options = options
        self._workplace = workplace
        self._table = table
        self._dead_letters = dead_letters
        self._format = form
        self._tell = tell
        self._sizing = Sizing(options.target_file_size)
        self._shape = make_shape(options, None if form is None else form.schema)

    @property
    def shape(self) -> Shape:
        """The rows as they are written now."""
        return self._shape

    def __call__(self, records: DataFrame, number: int) -> None:
        """Load one batch; what goes wrong is kept for the one who started the query."""
        try:
            self._load(records, number)
        except BaseException as error:
            self.failure = error
            raise

    def _load(self, records: DataFrame, number: int) -> None:
        query_id = self._workplace.checkpoint.query_id()
        assert query_id is not None, "Spark names a checkpoint before its first batch"
        batch = Batch(query_id, number)
        last = self._table.last_batch(query_id)
        if last is not None and last >= number:
            self._bury_again(batch, records)
            return
        if self._options.evolve and self._format is not None:
            self._learn(records)
        if self.direct is None:
            added, misfits = self._write(batch, records)
        else:
            added, misfits = self.direct.add(batch, records), 0
        if misfits:
            self._dead_letters.put(batch, self._misfits(records))
        self._count(added, misfits)
        if not self._options.evolve and added.measured.get("news") and self._format is not None:
            self._tell_news(records)
        if self._options.compact and (number + 1) % COMPACT_EVERY == 0:
            self.compact()

    def compact(self) -> None:
        """Turn small files into large ones."""
        self.tally.compacted_files += self._table.compact(self._options.target_file_size)

    def _write(self, batch: Batch, records: DataFrame) -> tuple[Added, int]:
        from pyspark.sql import Observation

        measures = Observation(f"ottla-{batch.number}")
        decoded = self._observed(self._decoded(records), measures)
        good = decoded.where(f"{REASON} is null") if REASON in decoded.columns else decoded
        if self._options.upsert:
            rows = self._last_of_each_key(good)
            added = self._table.upsert(batch, rows, measures, [self._shape.key])
        else:
            rows = self._shape.rows(good)
            fewer = self._fewer_tasks(records, batch)
            rows = rows if fewer is None else rows.coalesce(fewer)
            added = self._table.add(batch, rows, measures, self._sizing.most_rows_a_file())
        misfits = added.measured.get(MISFITS, 0)
        assert isinstance(misfits, int)
        return added, misfits

    def _decoded(self, records: DataFrame) -> DataFrame:
        """Records with value and reason; raw ones as they are unless a key is needed."""
        from pyspark.sql import functions as F

        if self._format is None:
            if not self._options.upsert:
                return records
            return records.withColumn(REASON, F.when(F.col("key").isNull(), F.lit(NO_KEY)))
        decoded = self._format.decode(records)
        return decoded.withColumn(REASON, self._reason(F.col(REASON)))

    def _reason(self, of_format: Column) -> Column:
        from pyspark.sql import functions as F

        if self._options.upsert:
            no_key = F.when(F.col("key").isNull(), F.lit(NO_KEY))
            return no_key.when(F.col("value").isNotNull(), of_format)
        return F.when(F.col("value").isNull(), F.lit(NO_VALUE)).otherwise(of_format)

    def _observed(self, decoded: DataFrame, measures: Observation) -> DataFrame:
        """Count while the rows go by; this also keeps Spark from decoding them twice."""
        from pyspark.sql import functions as F

        counts = [F.count(F.lit(1)).alias(RECORDS)]
        if REASON in decoded.columns:
            counts.append(F.count(F.col(REASON)).alias(MISFITS))
        if NEWS in decoded.columns:
            news = F.col("value").isNotNull() & F.col(REASON).isNull() & (F.size(NEWS) > 0)
            counts.append(F.count_if(news).alias("news"))
        return decoded.observe(measures, *counts)

    def _last_of_each_key(self, good: DataFrame) -> DataFrame:
        """The last record of each key: by offset in a partition, by time where a key moved."""
        from pyspark.sql import functions as F

        deleted = F.col("value").isNull().alias(DELETED)
        row = F.struct(*self._shape.expressions(), deleted).alias("row")
        records = good.select("key", "partition", "offset", "timestamp", row)
        kept = F.max_by(F.struct("row", "timestamp"), "offset").alias("kept")
        in_partition = records.groupBy("key", "partition").agg(kept)
        last = F.max_by("kept.row", F.struct("kept.timestamp", "partition")).alias("row")
        return in_partition.groupBy("key").agg(last).select("row.*")

    def _fewer_tasks(self, records: DataFrame, batch: Batch) -> int | None:
        """How many tasks are enough for a small batch; None when as many as read it."""
        planned = self._workplace.checkpoint.planned_records(batch.number)
        if planned is None:
            return None
        tasks = records._jdf.queryExecution().toRdd().getNumPartitions()
        wanted = self._sizing.tasks(planned, tasks)
        return wanted if wanted < tasks else None

    def _misfits(self, records: DataFrame) -> DataFrame:
        misfits = self._decoded(records).where(f"{REASON} is not null")
        return misfits if self._format is None else self._explained(misfits, self._format)

    def _explained(self, misfits: DataFrame, form: Format) -> DataFrame:
        """The format's words, except where the trouble is a null."""
        from pyspark.sql import functions as F

        explained = form.explain(misfits)
        return explained.withColumn(REASON, self._reason(F.col(REASON)))

    def _bury_again(self, batch: Batch, records: DataFrame) -> None:
        """The table has the batch, from before a crash; the dead letters may not."""
        if self._dead_letters.holds(batch) or not self._may_misfit:
            return
        misfits = self._misfits(records)
        if not misfits.isEmpty():
            self._dead_letters.put(batch, misfits)

    @property
    def _may_misfit(self) -> bool:
        return self._format is not None or self._options.upsert

    def _learn(self, records: DataFrame) -> None:
        """Widen schema and table by the fields of this batch, before any of it is written."""
        assert self._format is not None
        found = find_news(self._decoded(records), self._format)
        if found is None:
            return
        names, learned = found
        if learned.fields.fields:
            self._workplace.pin(learned.format.schema)
            self._shape = make_shape(self._options, learned.format.schema)
            self._table.widen(self._shape.schema)
        for name, kind in field_types(learned.fields):
            self.tally.added_fields[name] = kind
            self._tell(f"new field {name} {kind}: added")
        self._format = learned.format.ignoring(names)

    def _tell_news(self, records: DataFrame) -> None:
        """Say which fields are new; they are not loaded."""
        assert self._format is not None
        found = find_news(self._decoded(records), self._format)
        if found is None:
            return
        names, learned = found
        told = dict(field_types(learned.fields)) or dict.fromkeys(names, "")
        for name, kind in told.items():
            self.tally.news[name] = kind
            self._tell(f"new field {name} {kind}".rstrip() + ": not loaded (--evolve adds it)")
        self._format = self._format.ignoring(names)

    def _count(self, added: Added, misfits: int) -> None:
        records = added.measured.get(RECORDS, 0)
        assert isinstance(records, int)
        self.tally.records += records
        self.tally.dead_letters += misfits
        self.tally.files += added.files
        self.tally.size += added.size
        self.tally.batches += 1
        if not self._options.upsert:
            self._sizing.learn(records - misfits, added.size)
        if self.direct is not None:
            self.direct.expect(self._sizing.most_rows_a_file())
