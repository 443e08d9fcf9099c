"""`ottla reassign`: move replicas to other brokers, with Kafka's JSON files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.types import PositiveInt

from ottla.cli.errors import FAILED, OK, DataError, UsageError, complain, tell
from ottla.cli.options import BootstrapServer, CommandConfig, Json, connect, read_plan
from ottla.cli.output import Column, JsonValue, counted, print_json, print_table
from ottla.cli.reassign.log_dir_moves import begin_moves, cancel_moves, move_those_to_come
from ottla.cli.reassign.progress import Progress, State, progress_of, wait_until_done
from ottla.client.brokers import list_brokers
from ottla.client.cluster import Client
from ottla.client.topics.reassignment_plan import (
    PlanError,
    make_plan,
    plan_from_json,
    plan_to_json,
    topics_from_json,
)
from ottla.client.topics.reassignments import (
    alter_reassignments,
    current_replicas,
    list_reassignments,
)
from ottla.client.topics.replication_throttle import clear_throttle, set_throttle
from ottla.model.ids import TopicPartition

reassign = App(name="reassign", help="Move replicas of partitions to other brokers.")

PlanFile = Annotated[
    Path, Parameter(name="--file", help="A plan in Kafka's format, or - for stdin.")
]
Throttle = Annotated[
    PositiveInt | None,
    Parameter(
        help="Copy at most this many bytes a second on each broker. `verify` removes the limit."
    ),
]
Wait = Annotated[
    bool,
    Parameter(
        help="Wait until all replicas have moved, with a progress bar on a terminal.",
        show_default=False,
    ),
]
KeepThrottles = Annotated[bool, Parameter(help="Do not remove throttles.", show_default=False)]
_NONE: list[str] = []
_THROTTLE_STAYS = "It also removes the throttle when all replicas have moved: run it then."
_THROTTLE_IS_LEFT = "The throttle was set, and nothing moves: `ottla reassign verify` removes it."
_COLUMNS = [
    Column("topic"),
    Column("partition", True),
    Column("state"),
    Column("wanted"),
    Column("replicas"),
    Column("not in sync"),
]


@reassign.command(sort_key=1)
def generate(
    names: Annotated[
        list[str],
        Parameter(name="--topic", help="Topic names. Default: all topics.", show_default=False),
    ] = _NONE,
    *,
    topics_file: Annotated[
        Path | None,
        Parameter(help="Kafka's JSON file with the topics to move, instead of names."),
    ] = None,
    brokers: Annotated[
        str | None,
        Parameter(help="The ids of the brokers to use: 1,2,3. Default: all that run."),
    ] = None,
    racks: Annotated[
        str | None, Parameter(help="Use the running brokers in these racks: a,b.")
    ] = None,
    replication_factor: Annotated[
        PositiveInt | None,
        Parameter(help="The number of replicas of each partition. Default: as many as now."),
    ] = None,
    ignore_racks: Annotated[
        bool, Parameter(help="Do not spread replicas over racks.", show_default=False)
    ] = False,
    save_current: Annotated[
        Path | None,
        Parameter(help="Also write the present replicas to this file, for the way back."),
    ] = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Print a plan of replicas, spread evenly over brokers and racks. Nothing is changed."""
    if topics_file is not None:
        if names:
            raise UsageError("give only one of topics and --topics-file")
        names = read_plan(topics_file, topics_from_json)
    if brokers is not None and racks is not None:
        raise UsageError("give only one of --brokers and --racks")
    with connect(bootstrap_server, command_config) as client:
        chosen = _chosen_brokers(client, brokers, racks)
        placed = current_replicas(client, names or None)
    if ignore_racks:
        chosen = dict.fromkeys(chosen, "")
    current = {name: each.replicas for name, each in placed.items()}
    try:
        plan = make_plan(current, chosen, replication_factor)
    except PlanError as error:
        raise DataError(str(error)) from None
    if save_current is not None:
        _save(save_current, current)
    print(plan_to_json(plan))
    moved = sum(len(set(plan[name]) - set(current[name])) for name in plan)
    tell(f"{counted(moved, 'replica')} would be copied. Apply it with `ottla reassign execute`.")
    return OK


@reassign.command(sort_key=2)
def execute(
    file: PlanFile,
    *,
    wait: Wait = False,
    save_current: Annotated[
        Path | None,
        Parameter(help="Write the present replicas to this file first, for the way back."),
    ] = None,
    throttle: Throttle = None,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Begin to move replicas as a plan says. They are copied in the background."""
    wanted = read_plan(file, plan_from_json)
    plan = wanted.plan
    with connect(bootstrap_server, command_config) as client:
        if save_current is not None or throttle is not None:
            placed = current_replicas(client, sorted({name.topic for name in plan}))
        if save_current is not None:
            _save(save_current, {name: placed[name].replicas for name in plan if name in placed})
        if throttle is not None:
            moving = list_reassignments(client, list(plan))
            set_throttle(client, plan, placed, moving, throttle)
        to_come, refused = begin_moves(client, wanted.log_dirs)
        errors = alter_reassignments(client, plan)
        begun = {name for name, error in errors.items() if error is None}
        refused += move_those_to_come(client, to_come, begun)
        failed = [error for error in (*errors.values(), *refused) if error is not None]
        for error in failed:
            complain(str(error))
        if wait and begun:
            found = wait_until_done(client, wanted.only(begun))
            _end_throttle(client, found)
            return max(_report(found, json), FAILED if failed else OK)
    if json:
        print_json(
            [
                {
                    **_name(name),
                    "begun": error is None,
                    "error": None if error is None else str(error),
                }
                for name, error in errors.items()
            ]
        )
    else:
        print(f"{counted(len(begun), 'partition')} being reassigned")
        if begun:
            tell("`ottla reassign verify` shows how far it is.")
        if throttle is not None:
            tell(_THROTTLE_STAYS if begun else _THROTTLE_IS_LEFT)
    return FAILED if failed else OK


@reassign.command(sort_key=3)
def verify(
    file: PlanFile,
    *,
    wait: Wait = False,
    preserve_throttles: KeepThrottles = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Show the progress of a plan. The exit code is 0 if all partitions are as planned.

    If nothing moves any more, the throttles of the topics and of all brokers are removed.
    """
    wanted = read_plan(file, plan_from_json)
    with connect(bootstrap_server, command_config) as client:
        found = wait_until_done(client, wanted) if wait else progress_of(client, wanted)
        if not preserve_throttles:
            _end_throttle(client, found)
    return _report(found, json)


@reassign.command(sort_key=4)
def cancel(
    file: Annotated[
        Path | None,
        Parameter(name="--file", help="The plan whose reassignments are to be cancelled."),
    ] = None,
    *,
    all: Annotated[
        bool, Parameter(help="Cancel all reassignments that are going on.", show_default=False)
    ] = False,
    preserve_throttles: KeepThrottles = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Cancel reassignments: partitions keep the replicas that they had before.

    If the plan names log directories, moves to them are cancelled too.
    """
    if (file is None) != all:
        raise UsageError("give either a plan or --all")
    cancelled = None if file is None else read_plan(file, plan_from_json)
    plan = None if cancelled is None else cancelled.plan
    with connect(bootstrap_server, command_config) as client:
        moving = list_reassignments(client, None if plan is None else list(plan))
        wanted: dict[TopicPartition, Sequence[int] | None] = dict.fromkeys(moving)
        errors = alter_reassignments(client, wanted) if moving else {}
        refused = [] if cancelled is None else cancel_moves(client, cancelled.log_dirs)
        if not preserve_throttles and (moving or plan):
            clear_throttle(client, {name.topic for name in (plan or moving)})
    stuck = sum(error is not None for error in errors.values())
    failed = [error for error in (*errors.values(), *refused) if error is not None]
    for error in failed:
        complain(str(error))
    if json:
        print_json(
            [
                {
                    **_name(name),
                    "cancelled": error is None,
                    "error": None if error is None else str(error),
                }
                for name, error in errors.items()
            ]
        )
    elif not errors:
        tell("Nothing is being reassigned.")
    else:
        print(f"{counted(len(errors) - stuck, 'reassignment')} cancelled")
    return FAILED if failed else OK


def _end_throttle(client: Client, found: Sequence[Progress]) -> None:
    """Remove the throttle of a plan if nothing of it moves any more."""
    if any(each.state is State.MOVING for each in found):
        return
    existing = {each.partition.topic for each in found if each.replicas}
    if clear_throttle(client, existing):
        tell("The throttle is removed.")


def _chosen_brokers(
    client: Client, brokers: str | None, racks: str | None
) -> dict[int, str | None]:
    """Return the racks of the brokers to use, by id."""
    known = {each.broker_id: each for each in list_brokers(client)}
    running = {number: each.rack for number, each in known.items() if not each.is_fenced}
    if racks is not None:
        wanted = set(racks.split(","))
        found: dict[int, str | None] = {
            number: rack for number, rack in running.items() if rack in wanted
        }
        if not found:
            raise DataError(f"no running broker is in one of the racks {racks}")
        return found
    if brokers is None:
        return running
    ids = brokers.split(",")
    if not all(text.strip().isdigit() for text in ids):
        raise UsageError(f"--brokers {brokers!r} should be ids: 1,2,3")
    unknown = [text for text in ids if int(text) not in known]
    if unknown:
        raise DataError(f"there is no broker {unknown[0]}; `ottla brokers list` shows all brokers")
    return {int(text): known[int(text)].rack for text in ids}


def _save(path: Path, plan: Mapping[TopicPartition, Sequence[int]]) -> None:
    try:
        path.write_text(plan_to_json(plan) + "\n", encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from None


def _report(found: Sequence[Progress], json: bool) -> int:
    if json:
        print_json(
            [
                {
                    **_name(each.partition),
                    "state": each.state.value,
                    "wanted": list(each.wanted),
                    "replicas": list(each.replicas),
                    "not_in_sync": list(each.missing),
                    "in_other_log_dir": list(each.misplaced),
                }
                for each in found
            ]
        )
    else:
        rows = [
            [
                each.partition.topic,
                str(each.partition.partition),
                each.state.value,
                _joined(each.wanted),
                _joined(each.replicas),
                _joined(each.missing) or "-",
            ]
            for each in found
        ]
        print_table(_COLUMNS, rows, empty="The plan is empty.")
    return OK if all(each.state is State.COMPLETE for each in found) else FAILED


def _name(partition: TopicPartition) -> dict[str, JsonValue]:
    return {"topic": partition.topic, "partition": partition.partition}


def _joined(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))
