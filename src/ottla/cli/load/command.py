"""`ottla load`: load a topic into a table, each record exactly once."""

from __future__ import annotations

import signal
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.types import PositiveInt

from ottla.cli.errors import FAILED, UsageError, complain
from ottla.cli.load.result import print_result
from ottla.cli.options import BootstrapServer, CommandConfig, Json, client_properties, pairs
from ottla.cli.spark_extra import need_spark

_NONE: list[str] = []


def load(
    topic: Annotated[str, Parameter(help="The topic to load.")],
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
        Literal["earliest", "latest"],
        Parameter(name="--from", help="Where the first load starts. Later loads continue."),
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
            help="Where to write records that do not match the schema: topic:NAME or parquet:PATH."
            " Default: a Parquet table next to the target."
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
    json: Json = False,
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
    from ottla.cli.load.progress import LoadView
    from ottla_spark.api import load as run
    from ottla_spark.java import NoJava
    from ottla_spark.loads.errors import LoadError

    if once + (every is not None) + continuous > 1:
        raise UsageError("give only one of --once, --every and --continuous")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end as cleanly as with Ctrl-C
    try:
        with LoadView() as view:
            result = run(
                topic,
                to,
                client=client_properties(bootstrap_server, command_config),
                master=master,
                conf=pairs(conf, "--conf"),
                listener=view,
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
                dead_letters=dead_letters,
                checkpoint=checkpoint,
                target_file_size=target_file_size,
                max_records_per_batch=max_records_per_batch,
                group=group,
                allow_data_loss=allow_data_loss,
                catalog=pairs(catalog, "--catalog"),
            )
        print_result(result.as_json(), json)
    except LoadError as error:
        complain(str(error))
        return error.exit_code
    except NoJava as error:
        complain(str(error))
        return FAILED
    return result.exit_code
