"""Runs a load from start to end: reads the topic's offsets, sets up, runs the query, sums up.

Whatever ends the query, the table is correct, and the same load continues where it stopped.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ottla.client.settings import SettingError, client_settings
from ottla_spark.loads.errors import LoadError, LoadUsageError
from ottla_spark.loads.options.load_options import Continuous, Every, LoadOptions, Once
from ottla_spark.loads.options.start_option import start_options
from ottla_spark.loads.options.value_format import ValueFormat
from ottla_spark.loads.run.batch_loader import BatchLoader
from ottla_spark.loads.run.batch_size import BatchSize, batch_size
from ottla_spark.loads.run.failure_cause import load_error
from ottla_spark.loads.run.listener import Listener, ProgressWatch, lag_of
from ottla_spark.loads.run.load_setup import LoadSetup, prepare
from ottla_spark.loads.run.recreated_topic import check_recreated
from ottla_spark.loads.run.result import LoadResult
from ottla_spark.loads.run.topic_sample import TopicOffsets, record_size, sample, topic_offsets
from ottla_spark.loads.state.load_directory import LoadDirectory
from ottla_spark.loads.targets.table_writer import WorkerFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ottla.client.cluster import Client

POLL_S = 1
STARTS = 4
_SLOW_WORKER = "Python worker failed to connect back"  # within Spark's fixed ten seconds
DECODED_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")


def run_load(
    spark: SparkSession, options: LoadOptions, listener: Listener, stop: threading.Event
) -> LoadResult:
    """Load until done, or until `stop` is set.

    Raise LoadError, or ClientError for errors of the brokers, if the load cannot continue. Raise
    KeyboardInterrupt if a load that ends by itself was stopped before its end.
    """
    own = _own_session(spark)
    began = time.monotonic()
    with ExitStack() as held:
        client = held.enter_context(connect(options))
        offsets = _wait_for_records(client, options, listener, stop)
        if offsets is None:
            return LoadResult(options, time.monotonic() - began)
        prepared = prepare(
            own, options, lambda: sample(client, options, offsets), listener.say, held
        )
        check_recreated(prepared.directory, offsets, options, listener.say)
        loader = BatchLoader(
            options,
            prepared.directory,
            prepared.table,
            prepared.dead_letters,
            prepared.format,
            listener.say,
            prepared.worker_files,
            record_size(client, options.topic, offsets),
        )
        loader.tally.leftovers = prepared.leftovers
        listener.started(lag_of(prepared.directory, offsets))
        watch = ProgressWatch(client, options, prepared.directory, loader, listener)
        _run(own, options, prepared, loader, watch, stop)
        if stop.is_set() and isinstance(options.when, Once):
            raise KeyboardInterrupt
        now = topic_offsets(client, options)
        if options.allow_data_loss and now.topic_id:
            prepared.directory.set_topic_id(now.topic_id)  # it may have changed during the load
        return LoadResult(
            options,
            time.monotonic() - began,
            loader.tally,
            prepared.dead_letters.name,
            lag_of(prepared.directory, now),
        )


def _own_session(spark: SparkSession) -> SparkSession:
    """Return a new session with the load's settings. The given session keeps its own."""
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    own.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    own.conf.set("spark.sql.streaming.metricsEnabled", "false")
    return own


def connect(options: LoadOptions) -> Client:
    """Return a client of the load; raise LoadUsageError for wrong settings."""
    try:
        return client_settings(options.client).connect()
    except SettingError as error:
        raise LoadUsageError(str(error)) from None


def _wait_for_records(
    client: Client, options: LoadOptions, listener: Listener, stop: threading.Event
) -> TopicOffsets | None:
    """Return the topic's offsets; None if it stays empty and a sample is needed for the schema."""
    offsets = topic_offsets(client, options)
    needs_sample = options.format is not ValueFormat.RAW and options.schema is None
    if offsets.records or not needs_sample:
        return offsets
    listener.say(f"{options.topic} is empty: the schema needs at least one record")
    while not isinstance(options.when, Once) and not offsets.records:
        if stop.wait(min(options.when.interval_s, 5)):
            break
        offsets = topic_offsets(client, options)
    return offsets if offsets.records else None


def _records(
    spark: SparkSession, options: LoadOptions, size: BatchSize, worker_files: WorkerFiles | None
) -> DataFrame:
    """Return the stream of the topic's records, or of the files that workers write of them."""
    raw = options.format is ValueFormat.RAW
    if worker_files is None:
        reader = spark.readStream.format("ottla")
    else:
        reader = worker_files.reader(spark)
    chosen = {
        "subscribe": options.topic,
        **start_options(options.starting_offsets, options.topic),
        "failOnDataLoss": str(not options.allow_data_loss).lower(),
        "groupId": options.group_id,
        "includeHeaders": str(options.headers).lower(),
    } | size.options()
    if not raw:
        columns = (*DECODED_COLUMNS, "headers") if options.headers else DECODED_COLUMNS
        chosen["columns"] = ",".join(columns)
    chosen |= {f"kafka.{name}": text for name, text in options.source_properties.items()}
    return reader.options(**chosen).load()


def _run(
    spark: SparkSession,
    options: LoadOptions,
    prepared: LoadSetup,
    loader: BatchLoader,
    watch: ProgressWatch,
    stop: threading.Event,
) -> None:
    while True:
        began = time.monotonic()
        _run_again(spark, options, prepared.directory, loader, watch, stop)
        if options.compact and not stop.is_set():
            loader.compact()
        if not isinstance(options.when, Every):
            return
        if stop.wait(max(0.0, options.when.interval_s - (time.monotonic() - began))):
            return


def _run_again(
    spark: SparkSession,
    options: LoadOptions,
    directory: LoadDirectory,
    loader: BatchLoader,
    watch: ProgressWatch,
    stop: threading.Event,
) -> None:
    """Run a query; restart it a few times if a Python worker did not start in time."""
    for _ in range(STARTS - 1):
        try:
            return _run_query(spark, options, directory, loader, watch, stop)
        except LoadError as error:
            if _SLOW_WORKER not in str(error):
                raise
    return _run_query(spark, options, directory, loader, watch, stop)


def _run_query(
    spark: SparkSession,
    options: LoadOptions,
    directory: LoadDirectory,
    loader: BatchLoader,
    watch: ProgressWatch,
    stop: threading.Event,
) -> None:
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    size = batch_size(options, spark.sparkContext.defaultParallelism, directory.failures())
    writer = _records(spark, options, size, loader.worker_files).writeStream.foreachBatch(loader)
    writer = writer.queryName(options.group_id)
    writer = writer.option("checkpointLocation", directory.checkpoint.path)
    if isinstance(options.when, Continuous):
        writer = writer.trigger(processingTime=f"{options.when.interval_s} seconds")
    else:
        writer = writer.trigger(availableNow=True)
    try:
        directory.checkpoint.remove_half_planned()
        query = writer.start()
        try:
            while not query.awaitTermination(POLL_S) and not stop.is_set():
                watch.report()
            watch.report()
        finally:
            query.stop()
    except (PySparkException, Py4JJavaError) as error:
        raise load_error(error, loader.failure) from error
    except (Py4JError, ConnectionError) as error:
        raise LoadError(
            "the load stopped: Spark's Java process has ended. Run the same command to continue"
            " the load"
        ) from error
