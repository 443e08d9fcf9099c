"""Functions for Python programs: DataFrames of topics, and loads.

Options of the data source are passed by name: `columns="key,value"`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from ottla_spark.loads.options.dead_letter_option import parse_dead_letters
from ottla_spark.loads.options.load_options import (
    DEFAULT_TARGET_FILE_SIZE,
    Continuous,
    Every,
    LoadOptions,
    Once,
)
from ottla_spark.loads.options.partition_by import parse_partition_by
from ottla_spark.loads.options.quantities import parse_duration_s, parse_size
from ottla_spark.loads.options.value_format import parse_format
from ottla_spark.loads.run.early_answer import early_answer
from ottla_spark.loads.run.failure_cause import explain_failure
from ottla_spark.loads.run.listener import Listener
from ottla_spark.loads.run.load_run import run_load
from ottla_spark.loads.run.result import LoadResult
from ottla_spark.loads.targets.address import parse_address
from ottla_spark.missing_source import explain_missing_source
from ottla_spark.session import LOCAL, is_running, prepare_environment, session
from ottla_spark.stop_signals import stop_on_signals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEFAULT_SERVERS = "127.0.0.1:9092"


def read(
    spark: SparkSession, topic: str, bootstrap_servers: str = DEFAULT_SERVERS, **options: str
) -> DataFrame:
    """Return the records of a topic as a DataFrame; by default from earliest to latest."""
    reader = spark.read.format("ottla").option("subscribe", topic)
    with explain_missing_source():
        return reader.options(**{"kafka.bootstrap.servers": bootstrap_servers} | options).load()


def read_stream(
    spark: SparkSession, topic: str, bootstrap_servers: str = DEFAULT_SERVERS, **options: str
) -> DataFrame:
    """Return the records of a topic as a streaming DataFrame; by default from latest on."""
    reader = spark.readStream.format("ottla").option("subscribe", topic)
    with explain_missing_source():
        return reader.options(**{"kafka.bootstrap.servers": bootstrap_servers} | options).load()


def write(
    rows: DataFrame, topic: str, bootstrap_servers: str = DEFAULT_SERVERS, **options: str
) -> None:
    """Write rows to a topic: the column value, and key, headers and partition if present."""
    writer = rows.write.format("ottla").mode("append").option("topic", topic)
    with explain_missing_source():
        writer.options(**{"kafka.bootstrap.servers": bootstrap_servers} | options).save()


def load(
    topic: str,
    to: str,
    *,
    bootstrap_servers: str = DEFAULT_SERVERS,
    client: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    master: str = LOCAL,
    conf: Mapping[str, str] | None = None,
    listener: Listener | None = None,
    every: str | None = None,
    continuous: bool = False,
    format: str = "raw",
    schema: str | None = None,
    message: str | None = None,
    registry: str | None = None,
    registry_login: str = "",
    starting_offsets: str = "earliest",
    coordinates: bool = False,
    headers: bool = False,
    partition_by: str | Sequence[str] = (),
    upsert: bool = False,
    evolve: bool = False,
    compact: bool = False,
    dead_letters: str | None = None,
    checkpoint: str | None = None,
    target_file_size: int | str = DEFAULT_TARGET_FILE_SIZE,
    max_records_per_batch: int | None = None,
    max_bytes_per_batch: int | str | None = None,
    group: str | None = None,
    allow_data_loss: bool = False,
    reset: bool = False,
    isolation_level: str | None = None,
    catalog: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
    log: Path | None = None,
) -> LoadResult:
    """Load a topic into a table, as `ottla load` does. docs/loading.md describes the options.

    `client` are Kafka's client properties. If `spark` is not given, the load starts a session
    with `master` and `conf`. Raise LoadError or ClientError if the load cannot continue; the same
    call continues it later. A load with `every` or `continuous` ends when `stop` is set, by
    default by Ctrl-C or SIGTERM. Any other load raises KeyboardInterrupt then. What a session that
    the load starts has to say goes to the file `log`, if one is given.
    """
    parts = [partition_by] if isinstance(partition_by, str) else partition_by
    options = LoadOptions(
        topic=topic,
        to=parse_address(to),
        client={"bootstrap.servers": bootstrap_servers} | dict(client or {}),
        when=_when(every, continuous),
        format=parse_format(format),
        schema=schema,
        message=message,
        registry=registry,
        registry_login=registry_login,
        starting_offsets=starting_offsets,
        coordinates=coordinates,
        headers=headers,
        partition_by=parse_partition_by(parts),
        upsert=upsert,
        evolve=evolve,
        compact=compact,
        dead_letters=parse_dead_letters(dead_letters),
        checkpoint=checkpoint,
        target_file_size=_size(target_file_size, "--target-file-size") or DEFAULT_TARGET_FILE_SIZE,
        max_records_per_batch=max_records_per_batch,
        max_bytes_per_batch=_size(max_bytes_per_batch, "--max-bytes-per-batch"),
        group=group,
        allow_data_loss=allow_data_loss,
        reset=reset,
        isolation_level=isolation_level,
        catalog=dict(catalog or {}),
    )
    listener = listener or Listener()
    with stop_on_signals() if stop is None else nullcontext(stop) as event:
        if spark is None:
            answer = early_answer(options)  # first, because a session takes seconds to start
            if answer is not None:
                listener.say(f"nothing new: {to} has every record of {topic}")
                return answer
            if not is_running():
                listener.say(f"Spark at {master}, {prepare_environment(master).describe()}")
            began = time.monotonic()
            try:
                spark = session(master, conf=conf, log=log, stop=event)
                if event.is_set():
                    raise KeyboardInterrupt
            except KeyboardInterrupt:
                if isinstance(options.when, Once) or not event.is_set():
                    raise
                return LoadResult(options, time.monotonic() - began)
        with explain_failure():
            return run_load(spark, options, listener, event)


def _size(given: int | str | None, name: str) -> int | None:
    return parse_size(given, name) if isinstance(given, str) else given


def _when(every: str | None, continuous: bool) -> Once | Every | Continuous:
    if every is not None:
        return Every(parse_duration_s(every, "--every"))
    return Continuous() if continuous else Once()
