"""`ottla up` and `ottla broker` for the full parser, which prints help and explains mistakes."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import UInt16

from ottla.cli.options import pairs
from ottla.cli.serve import (
    DEFAULT_DATA_DIR,
    DEFAULT_HOST,
    DEFAULT_PORT,
    Serve,
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
    data_dir: Annotated[
        str, Parameter(help="The directory for data. It is created if it does not exist.")
    ] = DEFAULT_DATA_DIR,
    memory: Annotated[
        bool,
        Parameter(
            help="Store data in memory only. It is lost when the broker stops.", show_default=False
        ),
    ] = False,
    metrics_port: MetricsPort = None,
    settings: Settings = [],  # noqa: B006  # never changed; the parser shows it as the default
) -> int:
    """Start a broker without a configuration file.

    The command prints the bootstrap address as soon as the broker is ready. Ctrl-C or SIGTERM
    stops the broker cleanly.
    """
    return serve(up_request(port, host, data_dir, memory, pairs(settings, "--set"), metrics_port))


def broker(
    *,
    config: Annotated[
        str,
        Parameter(help="A properties file with Kafka's broker settings, like server.properties."),
    ],
    metrics_port: MetricsPort = None,
    settings: Settings = [],  # noqa: B006
) -> int:
    """Start a broker with a properties file that uses Kafka's names.

    If a setting is unknown or invalid, the command names it and does not start the broker.
    """
    return serve(Serve(config, pairs(settings, "--set"), memory=False, metrics_port=metrics_port))
