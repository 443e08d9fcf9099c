"""`ottla load`: load a topic into a table, each record exactly once."""

from __future__ import annotations

import signal
from pathlib import Path
from threading import Event
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.types import PositiveInt, UInt16

from ottla.cli.errors import FAILED, DataError, UsageError, complain, tell
from ottla.cli.load.result import print_result, print_results
from ottla.cli.load.topics import check_several, is_several, placed, topics_now
from ottla.cli.options import BootstrapServer, CommandConfig, Json, client_properties, pairs
from ottla.cli.spark_extra import Verbose, need_spark
from ottla.client.errors import ClientError

_NONE: list[str] = []


def load(
    topic: Annotated[
        str,
        Parameter(
            help="The topic to load. Several are separated by commas, or given by a regular"
            " expression that matches whole names; --to then has {topic} in it."
        ),
    ],
    *,
    to: Annotated[
        str,
        Parameter(
            help="The table: parquet:PATH, delta:PATH or iceberg:CATALOG.NAMESPACE.TABLE. It is"
            " created if it does not exist."
        ),
    ],
    once: Annotated[
        bool,
        Parameter(
            help="Load the records that the topic has now, then stop. This is the default.",
            show_default=False,
        ),
    ] = False,
    every: Annotated[
        str | None, Parameter(help="Load new records at this interval, such as 5m.")
    ] = None,
    continuous: Annotated[
        bool, Parameter(help="Keep loading new records until Ctrl-C.", show_default=False)
    ] = False,
    format: Annotated[
        Literal["raw", "json", "avro", "protobuf"],
        Parameter(help="The format of values. raw keeps them as bytes, with Kafka's columns."),
    ] = "raw",
    schema: Annotated[
        str | None,
        Parameter(
            help="The schema of values. For json: DDL (id BIGINT, name STRING) or a file with DDL;"
            " default: inferred from a sample. For avro: an .avsc file. For protobuf: a .proto"
            " file or a descriptor set."
        ),
    ] = None,
    message: Annotated[
        str | None, Parameter(help="The message type, if a Protobuf schema has several.")
    ] = None,
    registry: Annotated[
        str | None,
        Parameter(help="The URL of the schema registry of avro or protobuf records."),
    ] = None,
    registry_login: Annotated[
        str | None,
        Parameter(
            env_var="OTTLA_REGISTRY_LOGIN",
            help="USER:PASSWORD for the registry. Safer in the environment variable.",
        ),
    ] = None,
    from_: Annotated[
        str,
        Parameter(
            name="--from",
            help="Where the first load starts: earliest, latest, a time such as"
            ' 2026-11-01T12:00:00Z, or offsets such as {"0": 100}. Later loads continue.',
        ),
    ] = "earliest",
    coordinates: Annotated[
        bool,
        Parameter(
            help="Add _topic, _partition, _offset, _timestamp and _key to the fields of values.",
            show_default=False,
        ),
    ] = False,
    headers: Annotated[
        bool, Parameter(help="Add a column with the headers of records.", show_default=False)
    ] = False,
    partition_by: Annotated[
        list[str],
        Parameter(
            help="Partition the table by a column, or by the year, month, day or hour of one:"
            " day(timestamp). Repeatable.",
            show_default=False,
        ),
    ] = _NONE,
    upsert: Annotated[
        bool,
        Parameter(
            help="Keep only the last value of each key; a null value deletes the key. For Delta and"
            " Iceberg.",
            show_default=False,
        ),
    ] = False,
    evolve: Annotated[
        bool,
        Parameter(help="Add new fields of records to the table.", show_default=False),
    ] = False,
    compact: Annotated[
        bool,
        Parameter(
            help="Merge small files into larger ones during the load. For Parquet and Delta.",
            show_default=False,
        ),
    ] = False,
    dead_letters: Annotated[
        str | None,
        Parameter(
            help="Where to write records that do not match the schema: topic:NAME, parquet:PATH or"
            " delta:PATH. Default: a table next to the target, in Parquet, or in Delta if that is"
            " in an object store."
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        Parameter(help="The directory for the progress of the load. Default: next to the table."),
    ] = None,
    target_file_size: Annotated[str, Parameter(help="The size of data files to aim for.")] = "128m",
    max_records_per_batch: Annotated[
        PositiveInt | None,
        Parameter(help="The maximum number of records per commit. Default: a few million."),
    ] = None,
    max_bytes_per_batch: Annotated[
        str | None,
        Parameter(
            help="The approximate maximum size of a commit in bytes, such as 512m. Default: 1g per"
            " core."
        ),
    ] = None,
    group: Annotated[
        str | None,
        Parameter(
            help="The group whose offsets show the lag of the load. Default: a name made from the"
            " topic and the table."
        ),
    ] = None,
    allow_data_loss: Annotated[
        bool,
        Parameter(
            help="Continue if records were deleted before they were loaded.", show_default=False
        ),
    ] = False,
    reset: Annotated[
        bool,
        Parameter(
            help="Start over: delete the rows of the table, its dead letters and the progress of"
            " the load, then load everything again.",
            show_default=False,
        ),
    ] = False,
    isolation_level: Annotated[
        Literal["read_committed", "read_uncommitted"] | None,
        Parameter(
            help="read_committed leaves out the records of aborted transactions and waits for open"
            " ones; read_uncommitted loads everything. Default: isolation.level of"
            " --command-config, or else read_committed."
        ),
    ] = None,
    catalog: Annotated[
        list[str],
        Parameter(
            help="A property of the Iceberg catalog, as name=value. Repeatable.",
            show_default=False,
        ),
    ] = _NONE,
    master: Annotated[
        str,
        Parameter(
            help="The Spark master: local[*] for this machine, or a URL such as spark://host:7077."
        ),
    ] = "local[*]",
    conf: Annotated[
        list[str],
        Parameter(help="A Spark setting, as name=value. Repeatable.", show_default=False),
    ] = _NONE,
    metrics_port: Annotated[
        UInt16 | None,
        Parameter(
            help="Serve the figures of the running load on this port: /metrics for Prometheus,"
            " /json as JSON. 0 chooses a free port.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
    verbose: Verbose = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Load a topic into a table. Each record is loaded exactly once.

    Each load continues where the last one stopped. Records that do not match the schema go to
    the dead letters and do not stop the load. If the command is killed, run it again: it
    continues without loss and without duplicates.

    Exit codes: 0 success, 1 failure, 2 wrong usage, 3 success, but some records went to the dead
    letters, 4 records were deleted before they were loaded, 130 interrupted.
    """
    need_spark()
    from ottla.cli.load.metrics import MetricsServer
    from ottla.cli.load.progress import LoadView
    from ottla.cli.load.rounds import Rounds
    from ottla_spark.api import load as run
    from ottla_spark.java import NoSpark
    from ottla_spark.loads.errors import LoadError
    from ottla_spark.loads.options.load_options import TRIGGER_S
    from ottla_spark.loads.options.quantities import parse_duration_s
    from ottla_spark.loads.run.result import LoadResult
    from ottla_spark.spark_log import UnexpectedError, message_of, spark_log
    from ottla_spark.stop_signals import stop_on_signals

    if once + (every is not None) + continuous > 1:
        raise UsageError("give only one of --once, --every and --continuous")
    several = is_several(topic)
    if several:
        check_several(to, dead_letters, checkpoint)
    properties = client_properties(bootstrap_server, command_config)
    settings, catalog_properties = pairs(conf, "--conf"), pairs(catalog, "--catalog")
    reset_already: set[str] = set()
    for number in (signal.SIGINT, signal.SIGTERM):  # both end it cleanly from here on
        signal.signal(number, signal.default_int_handler)

    def load_one(
        name: str, log: Path | None, stop: Event | None, every: str | None, continuous: bool
    ) -> LoadResult:
        with LoadView() as view:
            result = run(
                name,
                placed(to, name),
                client=properties,
                master=master,
                conf=settings,
                listener=metrics.watched(view, name, placed(to, name)),
                every=every,
                continuous=continuous,
                format=format,
                schema=schema,
                message=message,
                registry=registry,
                registry_login=registry_login or "",
                starting_offsets=from_,
                coordinates=coordinates,
                headers=headers,
                partition_by=partition_by,
                upsert=upsert,
                evolve=evolve,
                compact=compact,
                dead_letters=dead_letters and placed(dead_letters, name),
                checkpoint=checkpoint and placed(checkpoint, name),
                target_file_size=target_file_size,
                max_records_per_batch=max_records_per_batch,
                max_bytes_per_batch=max_bytes_per_batch,
                group=group and placed(group, name),
                allow_data_loss=allow_data_loss,
                reset=reset and name not in reset_already,
                isolation_level=isolation_level,
                catalog=catalog_properties,
                log=log,
                stop=stop,
            )
        reset_already.add(name)
        return result

    try:
        with (
            spark_log(LoadError, ClientError, DataError, UsageError, verbose=verbose) as log,
            MetricsServer(metrics_port) as metrics,
        ):
            if metrics.port is not None:
                tell(f"metrics at http://127.0.0.1:{metrics.port}/metrics, JSON at /json")
            if not several:
                result = load_one(topic, log, None, every, continuous)
                print_result(result.as_json(), json)
                return result.exit_code
            with stop_on_signals() as stop:
                interval = parse_duration_s(every, "--every") if every is not None else None
                rounds = Rounds(lambda name: load_one(name, log, stop, None, False), tell, stop)
                try:
                    rounds.run(
                        lambda: topics_now(topic, properties, dead_letters),
                        TRIGGER_S if continuous else interval,
                    )
                finally:
                    print_results(rounds.results.values(), json)
                return rounds.exit_code
    except LoadError as error:
        complain(message_of(error))
        return error.exit_code
    except (NoSpark, UnexpectedError) as error:
        complain(message_of(error))
        return FAILED
