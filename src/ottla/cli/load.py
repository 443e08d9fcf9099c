"""`ottla load`: a topic into a table, incrementally, each record exactly once."""

from __future__ import annotations

import signal
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.types import PositiveInt

from ottla.cli.errors import FAILED, UsageError, complain
from ottla.cli.load_result import print_result
from ottla.cli.options import BootstrapServer, CommandConfig, Json, client_properties, pairs
from ottla.cli.spark_extra import need_spark

_NONE: list[str] = []


def load(
    topic: Annotated[str, Parameter(help="The topic to load.")],
    *,
    to: Annotated[
        str,
        Parameter(
            help="The table: parquet:PATH, delta:PATH or iceberg:CATALOG.NAMESPACE.TABLE; made if"
            " it is not there."
        ),
    ],
    once: Annotated[
        bool, Parameter(help="Load what is there and end: the default.", show_default=False)
    ] = False,
    every: Annotated[
        str | None, Parameter(help="Load what is there again and again, with this interval: 5m.")
    ] = None,
    continuous: Annotated[
        bool, Parameter(help="Keep loading what comes, until Ctrl-C.", show_default=False)
    ] = False,
    format: Annotated[
        Literal["raw", "json", "avro", "protobuf"],
        Parameter(help="What values are; raw keeps them as bytes, with Kafka's columns."),
    ] = "raw",
    schema: Annotated[
        str | None,
        Parameter(
            help="For json the fields as DDL (id BIGINT, name STRING) or a file with that; for"
            " avro an .avsc file; for protobuf a .proto file or a descriptor set. JSON's is found"
            " in a sample if left out."
        ),
    ] = None,
    message: Annotated[
        str | None, Parameter(help="The message of a Protobuf schema that has several.")
    ] = None,
    registry: Annotated[
        str | None,
        Parameter(help="URL of the schema registry that avro or protobuf records are framed for."),
    ] = None,
    registry_login: Annotated[
        str | None,
        Parameter(
            env_var="OTTLA_REGISTRY_LOGIN",
            help="USER:PASSWORD for the registry; better in the environment.",
        ),
    ] = None,
    from_: Annotated[
        Literal["earliest", "latest"],
        Parameter(name="--from", help="Where the first run begins; later ones go on."),
    ] = "earliest",
    coordinates: Annotated[
        bool,
        Parameter(
            help="Add _topic, _partition, _offset, _timestamp and _key to the fields of values.",
            show_default=False,
        ),
    ] = False,
    headers: Annotated[
        bool, Parameter(help="Add the headers of records.", show_default=False)
    ] = False,
    partition_by: Annotated[
        list[str],
        Parameter(
            help="Partition the table by a column, or by year, month, day or hour of one:"
            " day(timestamp); may be repeated.",
            show_default=False,
        ),
    ] = _NONE,
    upsert: Annotated[
        bool,
        Parameter(
            help="Keep the last value of each key; a null value deletes it. Delta and Iceberg.",
            show_default=False,
        ),
    ] = False,
    evolve: Annotated[
        bool,
        Parameter(help="Add fields to the table that records begin to have.", show_default=False),
    ] = False,
    compact: Annotated[
        bool,
        Parameter(
            help="Turn small files into large ones as it goes. Parquet and Delta.",
            show_default=False,
        ),
    ] = False,
    dead_letters: Annotated[
        str | None,
        Parameter(
            help="Where records go that do not fit: topic:NAME or parquet:PATH; a Parquet table"
            " beside the target if left out."
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        Parameter(
            help="Directory that remembers how far the load is; beside the table if left out."
        ),
    ] = None,
    target_file_size: Annotated[str, Parameter(help="Aim at data files of this size.")] = "128m",
    max_records_per_batch: Annotated[
        PositiveInt | None,
        Parameter(help="Records between two commits; some millions if left out."),
    ] = None,
    group: Annotated[
        str | None,
        Parameter(
            help="The group that shows the load's lag; named after topic and table if left out."
        ),
    ] = None,
    allow_data_loss: Annotated[
        bool,
        Parameter(
            help="Go on where records were deleted before they were loaded.", show_default=False
        ),
    ] = False,
    catalog: Annotated[
        list[str],
        Parameter(
            help="A property of the Iceberg catalog, name=value; may be repeated.",
            show_default=False,
        ),
    ] = _NONE,
    master: Annotated[
        str, Parameter(help="Spark's master: this machine, or spark://host:7077 and the like.")
    ] = "local[*]",
    conf: Annotated[
        list[str],
        Parameter(help="A Spark setting, name=value; may be repeated.", show_default=False),
    ] = _NONE,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Load a topic into a table, from where the last load stopped; each record exactly once.

    Records that do not fit the schema go to the dead letters and never stop a load. It can be
    killed at any moment: the same command goes on.

    Exit codes: 0 done, 3 done and some records are dead letters, 1 failed, 2 wrong usage, 4
    records were deleted before they were loaded, 130 interrupted.
    """
    need_spark()
    from ottla.cli.load_view import LoadView
    from ottla_spark.api import load as run
    from ottla_spark.java import NoJava
    from ottla_spark.loads.errors import LoadError

    if once + (every is not None) + continuous > 1:
        raise UsageError("give only one of --once, --every and --continuous")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as clean an end as Ctrl-C
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
