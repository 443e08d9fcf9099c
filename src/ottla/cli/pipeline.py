"""`ottla pipeline`: check, draw and run a pipeline file on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from ottla.cli.errors import UsageError, tell
from ottla.cli.options import Json, pairs
from ottla.cli.spark_extra import Verbose, need_spark

if TYPE_CHECKING:
    from ottla_spark.pipelines.command import Target

pipeline = App(name="pipeline", help="Check, draw and run a pipeline file on Spark.")

File = Annotated[str, Parameter(help="The pipeline file, in YAML.")]
Master = Annotated[
    str,
    Parameter(
        help="The Spark master: local[*] for this machine, or a URL such as spark://host:7077."
    ),
]
Servers = Annotated[
    str | None,
    Parameter(
        name=("--bootstrap-server", "-b"),
        env_var="OTTLA_BOOTSTRAP_SERVERS",
        help="Brokers to use instead of the file's bootstrap_servers.",
    ),
]
State = Annotated[
    str | None, Parameter(help="A checkpoint directory to use instead of the file's state.")
]
Conf = Annotated[
    list[str],
    Parameter(
        name="--conf", help="A Spark setting, as name=value. Repeatable.", show_default=False
    ),
]
_NONE: list[str] = []
_LOCAL = "local[*]"


@pipeline.command(sort_key=1)
def run(
    file: File,
    *,
    once: Annotated[
        bool,
        Parameter(
            help="Process the records that the topics have now, then stop.", show_default=False
        ),
    ] = False,
    every: Annotated[
        str | None, Parameter(help="Process new records at this interval, such as 5m.")
    ] = None,
    always: Annotated[
        bool, Parameter(help="Keep processing new records until stopped.", show_default=False)
    ] = False,
    master: Master = _LOCAL,
    bootstrap_server: Servers = None,
    state: State = None,
    conf: Conf = _NONE,
    json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Check FILE and run it. The options override the trigger in the file."""
    target = _target(file, master, bootstrap_server, state, conf, json, verbose)
    from ottla_spark.pipelines import command
    from ottla_spark.pipelines.spec.trigger import choose_trigger

    try:
        trigger = choose_trigger(once, every, always)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return command.run(target, trigger)


@pipeline.command(sort_key=2)
def plan(
    file: File,
    *,
    master: Master = _LOCAL,
    bootstrap_server: Servers = None,
    state: State = None,
    conf: Conf = _NONE,
    json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Draw the sources, steps and sinks of FILE with their schemas. Do not run it."""
    target = _target(file, master, bootstrap_server, state, conf, json, verbose)
    from ottla_spark.pipelines import command

    return command.plan(target)


@pipeline.command(sort_key=3)
def check(
    file: File,
    *,
    master: Master = _LOCAL,
    bootstrap_server: Servers = None,
    state: State = None,
    conf: Conf = _NONE,
    json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Report every mistake in FILE, with line numbers. Do not run it."""
    target = _target(file, master, bootstrap_server, state, conf, json, verbose)
    from ottla_spark.pipelines import command

    return command.check(target)


def _target(
    file: str,
    master: str,
    bootstrap_server: str | None,
    state: str | None,
    conf: list[str],
    json: bool,
    verbose: bool,
) -> Target:
    settings = pairs(conf, "--conf")
    need_spark()
    from ottla_spark.pipelines.command import Target

    return Target(file, master, bootstrap_server, state, settings, json, tell, verbose)
