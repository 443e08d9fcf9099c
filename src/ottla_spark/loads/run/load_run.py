"""A load from beginning to end: look at the topic, prepare, run the query, sum up.

Whatever ends the query, what the table holds is right, and the same load goes on where it
stopped.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ottla.admin.errors import AdminError
from ottla.admin.settings import SettingError, client_settings
from ottla_spark.loads.errors import LoadError, LoadUsageError
from ottla_spark.loads.options.load_options import Continuous, Every, LoadOptions, Once
from ottla_spark.loads.run.batch_loader import BatchLoader
from ottla_spark.loads.run.failure_cause import load_error
from ottla_spark.loads.run.load_setup import Prepared, prepare
from ottla_spark.loads.run.recreated_topic import check_recreated
from ottla_spark.loads.run.result import LoadResult
from ottla_spark.loads.run.tally import Tally
from ottla_spark.loads.run.topic_sample import Ends, sample, topic_ends
from ottla_spark.loads.state.load_directory import Workplace
from ottla_spark.loads.targets.address import ValueFormat
from ottla_spark.loads.targets.parquet_worker_files import DirectWriting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ottla.admin.client import Client

POLL_S = 1
ENDS_EVERY_S = 5.0
STARTS = 4
_TOO_BUSY = "Python worker failed to connect back"  # within ten seconds, which Spark has fixed
RECORDS_A_CORE = 2_500_000
UPSERTS_A_BATCH = 500_000
DECODED_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")


class Listener:
    """Hears how a load goes; this one keeps quiet."""

    def say(self, line: str) -> None:
        """One line for people."""

    def started(self, records: int) -> None:
        """The load begins; so many records wait."""

    def progress(self, tally: Tally, lag: int) -> None:
        """A moment has passed while a query runs."""


def check_topic(options: LoadOptions) -> None:
    """AdminError or LoadUsageError if the topic cannot be reached."""
    with _connect(options) as client:
        topic_ends(client, options.topic)


def run_load(
    spark: SparkSession, options: LoadOptions, hears: Listener, stop: threading.Event
) -> LoadResult:
    """Load until done or until `stop` is set, which is a good end only where there is no other.

    LoadError, or AdminError for what the brokers refuse, when it cannot go on;
    KeyboardInterrupt when it was stopped before it had done what it was for.
    """
    own = _own_session(spark)
    began = time.monotonic()
    with ExitStack() as held:
        client = held.enter_context(_connect(options))
        ends = _wait_for_records(client, options, hears, stop)
        if ends is None:
            return LoadResult(options, time.monotonic() - began)
        prepared = prepare(
            own, options, lambda: sample(client, options.topic, ends), hears.say, held
        )
        check_recreated(prepared.workplace, ends, options, hears.say)
        loader = BatchLoader(
            options,
            prepared.workplace,
            prepared.table,
            prepared.dead_letters,
            prepared.format,
            hears.say,
            prepared.direct,
        )
        loader.tally.leftovers = prepared.leftovers
        hears.started(lag_of(prepared.workplace, ends))
        watch = _Watch(client, options, prepared, loader, hears)
        _run(own, options, prepared, loader, watch, stop)
        if stop.is_set() and isinstance(options.when, Once):
            raise KeyboardInterrupt
        now = topic_ends(client, options.topic)
        if options.allow_data_loss and now.topic_id:
            prepared.workplace.note_topic_id(now.topic_id)  # it may have changed meanwhile
        return LoadResult(
            options,
            time.monotonic() - began,
            loader.tally,
            prepared.dead_letters.name,
            lag_of(prepared.workplace, now),
        )


def _own_session(spark: SparkSession) -> SparkSession:
    """A session whose settings are the load's own; the one that was given keeps its own."""
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    own.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    own.conf.set("spark.sql.streaming.metricsEnabled", "false")
    return own


def _connect(options: LoadOptions) -> Client:
    try:
        return client_settings(options.client).connect()
    except SettingError as error:
        raise LoadUsageError(str(error)) from None


def _wait_for_records(
    client: Client, options: LoadOptions, hears: Listener, stop: threading.Event
) -> Ends | None:
    """The ends of the topic; None if it stays empty and there is nothing to find a schema in."""
    ends = topic_ends(client, options.topic)
    learns = options.format is not ValueFormat.RAW and options.schema is None
    if ends.records or not learns:
        return ends
    hears.say(f"{options.topic} is empty: there is nothing to find the schema in")
    while not isinstance(options.when, Once) and not ends.records:
        if stop.wait(min(options.when.interval_s, 5)):
            break
        ends = topic_ends(client, options.topic)
    return ends if ends.records else None


def _records(spark: SparkSession, options: LoadOptions, direct: DirectWriting | None) -> DataFrame:
    """The stream of the topic's records, with the columns that are needed, or of their files."""
    raw = options.format is ValueFormat.RAW
    reader = spark.readStream.format("ottla") if direct is None else direct.reader(spark)
    chosen = {
        "subscribe": options.topic,
        "startingOffsets": options.starting_offsets,
        "failOnDataLoss": str(not options.allow_data_loss).lower(),
        "groupId": options.group_id,
        "includeHeaders": str(options.headers).lower(),
        "maxOffsetsPerTrigger": str(_batch_limit(spark, options)),
    }
    if not raw:
        columns = (*DECODED_COLUMNS, "headers") if options.headers else DECODED_COLUMNS
        chosen["columns"] = ",".join(columns)
    chosen |= {f"kafka.{name}": text for name, text in options.client.items()}
    return reader.options(**chosen).load()


def _batch_limit(spark: SparkSession, options: LoadOptions) -> int:
    """Records in a batch: many, for large files; fewer where a merge holds them in memory."""
    if options.max_records_per_batch is not None:
        return options.max_records_per_batch
    if options.upsert:
        return UPSERTS_A_BATCH
    return RECORDS_A_CORE * spark.sparkContext.defaultParallelism


def lag_of(workplace: Workplace, ends: Ends) -> int:
    """Records of the topic that the load has not committed."""
    done = {
        int(partition): offset
        for (_, partition), offset in workplace.checkpoint.positions().items()
    }
    return sum(
        max(0, end - max(done.get(partition, 0), ends.earliest[partition]))
        for partition, end in ends.latest.items()
    )


class _Watch:
    """Tells the listener how far a running load is; asks the brokers now and then."""

    def __init__(
        self,
        client: Client,
        options: LoadOptions,
        prepared: Prepared,
        loader: BatchLoader,
        hears: Listener,
    ) -> None:
        self._client = client
        self._options = options
        self._workplace = prepared.workplace
        self._loader = loader
        self._hears = hears
        self._ends: Ends | None = None
        self._asked = 0.0

    def look(self) -> None:
        """Tell now."""
        if self._ends is None or time.monotonic() - self._asked > ENDS_EVERY_S:
            self._asked = time.monotonic()
            try:
                self._ends = topic_ends(self._client, self._options.topic)
            except AdminError:
                pass  # the query itself says when brokers are gone for good
        if self._ends is not None:
            self._hears.progress(self._loader.tally, lag_of(self._workplace, self._ends))


def _run(
    spark: SparkSession,
    options: LoadOptions,
    prepared: Prepared,
    loader: BatchLoader,
    watch: _Watch,
    stop: threading.Event,
) -> None:
    while True:
        began = time.monotonic()
        _run_again(spark, options, prepared.workplace, loader, watch, stop)
        if options.compact and not stop.is_set():
            loader.compact()
        if not isinstance(options.when, Every):
            return
        if stop.wait(max(0.0, options.when.interval_s - (time.monotonic() - began))):
            return


def _run_again(
    spark: SparkSession,
    options: LoadOptions,
    workplace: Workplace,
    loader: BatchLoader,
    watch: _Watch,
    stop: threading.Event,
) -> None:
    """Run a query; start it anew a few times where only the machine was too busy to begin."""
    for _ in range(STARTS - 1):
        try:
            return _run_query(spark, options, workplace, loader, watch, stop)
        except LoadError as error:
            if _TOO_BUSY not in str(error):
                raise
    return _run_query(spark, options, workplace, loader, watch, stop)


def _run_query(
    spark: SparkSession,
    options: LoadOptions,
    workplace: Workplace,
    loader: BatchLoader,
    watch: _Watch,
    stop: threading.Event,
) -> None:
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    writer = _records(spark, options, loader.direct).writeStream.foreachBatch(loader)
    writer = writer.queryName(options.group_id)
    writer = writer.option("checkpointLocation", workplace.checkpoint.path)
    if isinstance(options.when, Continuous):
        writer = writer.trigger(processingTime=f"{options.when.interval_s} seconds")
    else:
        writer = writer.trigger(availableNow=True)
    try:
        workplace.checkpoint.remove_half_planned()
        query = writer.start()
        try:
            while not query.awaitTermination(POLL_S) and not stop.is_set():
                watch.look()
            watch.look()
        finally:
            query.stop()
    except (PySparkException, Py4JJavaError) as error:
        raise load_error(error, loader.failure) from error
    except (Py4JError, ConnectionError) as error:
        raise LoadError(
            "the load stopped: Spark's Java process has ended. The same command goes on where it"
            " stopped"
        ) from error
