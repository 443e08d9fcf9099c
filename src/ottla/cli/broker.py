"""`up` and `broker` as the full parser sees them: their help, and what is wrong with a mistake."""

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
        help="A broker setting as key=value, with Kafka's names; may be repeated.",
        show_default=False,
    ),
]


def up(
    *,
    port: Annotated[
        UInt16, Parameter(help="The port to listen on; 0 picks a free one.")
    ] = DEFAULT_PORT,
    host: Annotated[str, Parameter(help="The address or name to listen on.")] = DEFAULT_HOST,
    data_dir: Annotated[
        str, Parameter(help="Where the data is kept; made if it is not there.")
    ] = DEFAULT_DATA_DIR,
    memory: Annotated[
        bool,
        Parameter(help="Keep everything in memory, and nothing after the end.", show_default=False),
    ] = False,
    settings: Settings = [],  # noqa: B006  # never changed; the parser shows it as the default
) -> int:
    """Run a broker with no configuration at all.

    It prints its bootstrap address once it answers. Ctrl-C or SIGTERM stops it cleanly.
    """
    return serve(up_request(port, host, data_dir, memory, pairs(settings, "--set")))


def broker(
    *,
    config: Annotated[str, Parameter(help="A file like Kafka's server.properties.")],
    settings: Settings = [],  # noqa: B006
) -> int:
    """Run a broker from a properties file with Kafka's own names.

    A setting that is unknown or invalid is named, and nothing is started.
    """
    return serve(Serve(config, pairs(settings, "--set"), memory=False))
