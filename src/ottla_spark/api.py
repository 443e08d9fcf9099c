"""The functions for Python programs: DataFrames of topics, and loads.

Every option of the data source may be given by its name: `columns="key,value"`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
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
from ottla_spark.loads.run.listener import Listener
from ottla_spark.loads.run.load_run import check_topic, run_load
from ottla_spark.loads.run.result import LoadResult
from ottla_spark.loads.targets.address import parse_address
from ottla_spark.session import LOCAL, prepare_environment, session
from ottla_spark.stop_signals import stopped_by_signals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEFAULT_SERVERS = "127.0.0.1:9092"


def read(
    spark: SparkSession, topic: str, bootstrap_servers: str = DEFAULT_SERVERS, **options: str
) -> DataFrame:
    """The records of a topic as a DataFrame, from the earliest to the latest unless told."""
    reader = spark.read.format("ottla").option("subscribe", topic)
    return reader.options(**{"kafka.bootstrap.servers": bootstrap_servers} | options).load()


def read_stream(
    spark: SparkSession, topic: str, bootstrap_servers: str = DEFAULT_SERVERS, **options: str
) -> DataFrame:
    """The records of a topic as a streaming DataFrame, from the latest on unless told."""
    reader = spark.readStream.format("ottla").option("subscribe", topic)
    return reader.options(**{"kafka.bootstrap.servers": bootstrap_servers} | options).load()


def write(
    rows: DataFrame, topic: str, bootstrap_servers: str = DEFAULT_SERVERS, **options: str
) -> None:
    """Write rows (value; key, headers, partition if they are there) to a topic."""
    writer = rows.write.format("ottla").mode("append").option("topic", topic)
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
    group: str | None = None,
    allow_data_loss: bool = False,
    catalog: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
) -> LoadResult:
    """Load a topic into a table as `ottla load` does; docs/loading.md says what each option is.

    `client` are Kafka's client properties; `master` and `conf` are for a session of the load's
    own, used when no `spark` is given. LoadError or AdminError when it cannot go on; the
    same call then goes on where it stopped. With `every` or `continuous` it ends when `stop` is
    set, by default by Ctrl-C and SIGTERM; any other load raises KeyboardInterrupt then.
    """
    size = target_file_size
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
        target_file_size=parse_size(size, "target_file_size") if isinstance(size, str) else size,
        max_records_per_batch=max_records_per_batch,
        group=group,
        allow_data_loss=allow_data_loss,
        catalog=dict(catalog or {}),
    )
    hears = Listener() if listener is None else listener
    if spark is None:
        check_topic(options)  # before the seconds that a session takes
        hears.say(f"Spark at {master}, {prepare_environment(master).describe()}")
        spark = session(master, conf=conf)
    with stopped_by_signals() if stop is None else nullcontext(stop) as asked:
        return run_load(spark, options, hears, asked)


def _when(every: str | None, continuous: bool) -> Once | Every | Continuous:
    if every is not None:
        return Every(parse_duration_s(every, "--every"))
    return Continuous() if continuous else Once()
