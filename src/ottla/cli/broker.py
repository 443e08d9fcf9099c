"""`ottla up` and `ottla broker` for the full parser, which prints help and explains mistakes."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter, validators
from cyclopts.types import UInt16

from ottla.cli.errors import UsageError
from ottla.cli.options import pairs
from ottla.cli.serve import (
    DEFAULT_DATA_DIR,
    DEFAULT_HOST,
    DEFAULT_PORT,
    MOST_BROKERS,
    Serve,
    is_address,
    serve,
    up_request,
)

Settings = Annotated[
    list[str],
    Parameter(
        name="--set",
        help="A broker setting as name=value, such as log.retention.ms=600000. Repeatable.",
        show_default=False,
    ),
]


Verbose = Annotated[
    bool,
    Parameter(help="Show the version and all given settings at the start.", show_default=False),
]

MetricsPort = Annotated[
    UInt16 | None,
    Parameter(
        help="Serve metrics for Prometheus on this port, path /metrics. 0 chooses a free port.",
        show_default=False,
    ),
]


def up(
    *,
    port: Annotated[
        UInt16, Parameter(help="The port to listen on. 0 chooses a free port.")
    ] = DEFAULT_PORT,
    host: Annotated[str, Parameter(help="The address or host name to listen on.")] = DEFAULT_HOST,
    advertise: Annotated[
        str | None,
        Parameter(
            name="--advertise",
            help="The host name or address that clients connect to, if they cannot use --host:"
            " HOST or HOST:PORT.",
            show_default=False,
        ),
    ] = None,
    data_dir: Annotated[
        str, Parameter(help="The directory for data. It is created if it does not exist.")
    ] = DEFAULT_DATA_DIR,
    memory: Annotated[
        bool,
        Parameter(
            help="Store data in memory only. It is lost when the broker stops.", show_default=False
        ),
    ] = False,
    brokers: Annotated[
        int,
        Parameter(
            help="The number of brokers. Several are a cluster on this machine: a process and a"
            " directory below --data-dir for each, and ports from --port on.",
            validator=validators.Number(gte=1, lte=MOST_BROKERS),
        ),
    ] = 1,
    tier: Annotated[
        str | None,
        Parameter(
            name="--tier",
            help="The object store for old segments of topics with remote.storage.enable=true:"
            " file:./DIRECTORY, or s3://BUCKET/PREFIX, gs:// or az:// with ottla[tier].",
            show_default=False,
        ),
    ] = None,
    metrics_port: MetricsPort = None,
    verbose: Verbose = False,
    settings: Settings = [],  # noqa: B006  # never changed; the parser shows it as the default
) -> int:
    """Start a broker, or several as a cluster, without a configuration file.

    The command prints the bootstrap address as soon as the broker is ready. Ctrl-C or SIGTERM
    stops the broker cleanly. With --brokers, both hold for the whole cluster.
    """
    overrides = pairs(settings, "--set")
    if advertise is not None and not is_address(advertise):
        raise UsageError(f"--advertise {advertise!r} should be HOST or HOST:PORT")
    return serve(
        up_request(
            port,
            host,
            data_dir,
            memory,
            overrides,
            metrics_port,
            advertise,
            verbose,
            brokers,
            tier,
        )
    )


def broker(
    *,
    config: Annotated[
        str,
        Parameter(help="A properties file with Kafka's broker settings, like server.properties."),
    ],
    metrics_port: MetricsPort = None,
    verbose: Verbose = False,
    settings: Settings = [],  # noqa: B006
) -> int:
    """Start a broker with a properties file that uses Kafka's names.

    If a setting is unknown or invalid, the command names it and does not start the broker.
    """
    return serve(Serve(config, pairs(settings, "--set"), False, metrics_port, verbose))
