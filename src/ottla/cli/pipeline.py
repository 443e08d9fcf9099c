"""`ottla pipeline`: check, draw and run a pipeline file on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from ottla.cli.errors import UsageError
from ottla.cli.options import Json, pairs
from ottla.cli.spark_extra import need_spark

if TYPE_CHECKING:
    from ottla_spark.pipelines.command import Target

pipeline = App(name="pipeline", help="Check, draw and run a pipeline file on Spark.")

File = Annotated[str, Parameter(help="The pipeline file, in YAML.")]
Master = Annotated[
    str, Parameter(help="Where Spark runs: local[*] is inside this command; or spark://host:7077.")
]
Servers = Annotated[
    str | None,
    Parameter(
        name=("--bootstrap-server", "-b"),
        env_var="OTTLA_BOOTSTRAP_SERVERS",
        help="Brokers in place of the file's bootstrap_servers.",
    ),
]
State = Annotated[
    str | None, Parameter(help="A directory for checkpoints in place of the file's state.")
]
Conf = Annotated[
    list[str], Parameter(name="--conf", help="A setting of Spark as name=value; may be repeated.")
]
_NONE: list[str] = []
_LOCAL = "local[*]"


@pipeline.command(sort_key=1)
def run(
    file: File,
    *,
    once: Annotated[
        bool, Parameter(help="Work through what is there, then end.", show_default=False)
    ] = False,
    every: Annotated[
        str | None, Parameter(help="Work through what is there every so often, such as 5m.")
    ] = None,
    always: Annotated[bool, Parameter(help="Go on until stopped.", show_default=False)] = False,
    master: Master = _LOCAL,
    bootstrap_server: Servers = None,
    state: State = None,
    conf: Conf = _NONE,
    json: Json = False,
) -> int:
    """Check FILE and run it: as its trigger says, unless told otherwise here."""
    target = _target(file, master, bootstrap_server, state, conf, json)
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
) -> int:
    """Draw FILE: its sinks, steps and sources with their schemas. Nothing is started."""
    target = _target(file, master, bootstrap_server, state, conf, json)
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
) -> int:
    """Say everything that is wrong with FILE, with line numbers. Nothing is started."""
    target = _target(file, master, bootstrap_server, state, conf, json)
    from ottla_spark.pipelines import command

    return command.check(target)


def _target(
    file: str,
    master: str,
    bootstrap_server: str | None,
    state: str | None,
    conf: list[str],
    json: bool,
) -> Target:
    settings = pairs(conf, "--conf")
    need_spark()
    from ottla_spark.pipelines.command import Target

    return Target(file, master, bootstrap_server, state, settings, json)
