"""`ottla groups reset-offsets`: from the options to a plan, and with --execute to new offsets."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from cyclopts import Parameter
from cyclopts.types import NonNegativeInt

from ottla.admin.client import Client
from ottla.admin.group_offsets import commit_offsets
from ottla.admin.group_reset import (
    ShiftBy,
    Step,
    Target,
    ToCurrent,
    ToOffset,
    ToOffsets,
    TopicScope,
    ToTime,
    plan_reset,
    require_empty,
    scope_of_group,
    scope_of_topics,
)
from ottla.admin.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.cli.errors import FAILED, OK, DataError, UsageError, complain
from ottla.cli.groups.view import print_steps, step_as_json
from ottla.cli.options import BootstrapServer, CommandConfig, Json, connect
from ottla.cli.output import JsonValue, counted, print_json
from ottla.cli.times import duration_ms, timestamp_ms
from ottla.model.ids import TopicPartition

ScopeNames = Annotated[
    list[str],
    Parameter(
        help="A topic, or some partitions of one as topic:0,1,2; may be repeated.",
        show_default=False,
    ),
]
_NONE: list[str] = []
_TARGETS: Final = (
    "--to-earliest, --to-latest, --to-datetime, --by-duration, --shift-by, --to-offset,"
    " --to-current and --from-file"
)
_CSV_FIELDS: Final = 3


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """Where to: exactly one of these is given."""

    to_earliest: Annotated[bool, Parameter(help="To the oldest record.", show_default=False)] = (
        False
    )
    to_latest: Annotated[
        bool, Parameter(help="To the end: only new records.", show_default=False)
    ] = False
    to_datetime: Annotated[
        str | None,
        Parameter(
            help="To the first record of this time or later: 2026-01-31T12:00:00, or"
            " milliseconds since 1970."
        ),
    ] = None
    by_duration: Annotated[
        str | None,
        Parameter(help="To the first record of so long ago or later: 1d12h30m or P1DT12H30M."),
    ] = None
    shift_by: Annotated[
        int | None,
        Parameter(help="So many records on, or back if negative.", allow_leading_hyphen=True),
    ] = None
    to_offset: Annotated[NonNegativeInt | None, Parameter(help="To this offset.")] = None
    to_current: Annotated[
        bool,
        Parameter(
            help="To what is committed already, or the end where nothing is.", show_default=False
        ),
    ] = False
    from_file: Annotated[
        str | None,
        Parameter(
            help="To the offsets in a CSV file, lines of topic,partition,offset; - is stdin.",
            allow_leading_hyphen=True,
        ),
    ] = None

    def target(self) -> Target:
        """The one that was given; UsageError if it is none or several."""
        given = list(self._given())
        if len(given) != 1:
            raise UsageError(f"give {'only ' if given else ''}one of {_TARGETS}")
        return given[0]()

    def _given(self) -> Iterator[Callable[[], Target]]:
        if self.to_earliest:
            yield lambda: ToTime(EARLIEST_TIMESTAMP)
        if self.to_latest:
            yield lambda: ToTime(LATEST_TIMESTAMP)
        if (when := self.to_datetime) is not None:
            yield lambda: ToTime(timestamp_ms(when, "--to-datetime"))
        if (ago := self.by_duration) is not None:
            yield lambda: ToTime(_time_ago_ms(ago))
        if (by := self.shift_by) is not None:
            yield lambda: ShiftBy(by)
        if (offset := self.to_offset) is not None:
            yield lambda: ToOffset(offset)
        if self.to_current:
            yield ToCurrent
        if (path := self.from_file) is not None:
            yield lambda: ToOffsets(_read_csv(path))


_NO_TARGET: Final = TargetOptions()


def reset_offsets(
    group: Annotated[str, Parameter(name="--group", help="The group.")],
    *,
    topic: ScopeNames = _NONE,
    all_topics: Annotated[
        bool, Parameter(help="All topics that the group has offsets of.", show_default=False)
    ] = False,
    to: TargetOptions = _NO_TARGET,
    execute: Annotated[
        bool,
        Parameter(help="Do it; otherwise it is only shown what would be.", show_default=False),
    ] = False,
    export: Annotated[
        bool,
        Parameter(help="Print the plan as CSV, as --from-file takes it.", show_default=False),
    ] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Set the offsets of a group without members. Shows what would be done unless --execute.

    An offset that a partition does not have becomes the nearest it has, marked with a star.
    """
    target = to.target()
    scopes = [parse_scope(text) for text in topic]
    _check_scope(target, scopes, all_topics)
    if export and json:
        raise UsageError("give only one of --export and --json")
    with connect(bootstrap_server, command_config) as client:
        require_empty(client, group)
        partitions = _partitions(client, group, target, scopes, all_topics)
        steps = plan_reset(client, group, partitions, target)
        failures = _execute(client, group, steps) if execute else {}
    _print_plan(group, steps, failures, execute=execute, export=export, json=json)
    return FAILED if failures else OK


def parse_scope(text: str) -> TopicScope:
    """A topic, or topic:0,1,2."""
    name, colon, numbers = text.partition(":")
    parts = numbers.split(",") if colon else []
    if not name or not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"--topic {text!r} should be a topic, or topic:0,1,2")
    return TopicScope(name, [int(part) for part in parts])


def named_partitions(client: Client, scopes: Sequence[TopicScope]) -> list[TopicPartition]:
    """The partitions named, looked up only where a whole topic is: it may be gone."""
    whole = [scope for scope in scopes if not scope.partitions]
    named = [TopicPartition(topic, p) for topic, partitions in scopes for p in partitions]
    return sorted({*named, *scope_of_topics(client, whole)})


def _time_ago_ms(duration: str) -> int:
    return int(time.time() * 1000) - duration_ms(duration, "--by-duration")


def _check_scope(target: Target, scopes: Sequence[TopicScope], all_topics: bool) -> None:
    if scopes and all_topics:
        raise UsageError("give either --topic or --all-topics")
    if not scopes and not all_topics and not isinstance(target, ToOffsets):
        raise UsageError("which topics? Give --topic or --all-topics")


def _partitions(
    client: Client,
    group: str,
    target: Target,
    scopes: Sequence[TopicScope],
    all_topics: bool,
) -> list[TopicPartition]:
    chosen = scope_of_group(client, group) if all_topics else scope_of_topics(client, scopes)
    if not isinstance(target, ToOffsets):
        return chosen
    in_file = sorted(target.offsets)
    return [p for p in in_file if p in set(chosen)] if scopes or all_topics else in_file


def _read_csv(path: str) -> dict[TopicPartition, int]:
    """The offsets of a file; DataError says which line is not as it should be."""
    try:
        if path == "-":
            return _parse_csv(path, sys.stdin.read())
        with open(path, encoding="utf-8", newline="") as file:
            return _parse_csv(path, file.read())
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None


def _parse_csv(path: str, text: str) -> dict[TopicPartition, int]:
    offsets = {}
    for number, row in enumerate(csv.reader(text.splitlines()), start=1):
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if len(cells) != _CSV_FIELDS or not all(c.isascii() and c.isdigit() for c in cells[1:]):
            raise DataError(f"{path}, line {number}: expected topic,partition,offset")
        offsets[TopicPartition(cells[0], int(cells[1]))] = int(cells[2])
    if not offsets:
        raise DataError(f"{path} has no offsets; expected lines of topic,partition,offset")
    return offsets


def _execute(client: Client, group: str, steps: Sequence[Step]) -> dict[TopicPartition, str]:
    """Commit a plan; what failed, in words."""
    offsets = {step.partition: step.new_offset for step in steps}
    outcomes = commit_offsets(client, group, offsets) if offsets else []
    return {outcome.partition: str(outcome.error) for outcome in outcomes if outcome.error}


def _print_plan(
    group: str,
    steps: Sequence[Step],
    failures: dict[TopicPartition, str],
    *,
    execute: bool,
    export: bool,
    json: bool,
) -> None:
    for words in failures.values():
        complain(words)
    if json:
        print_json(_plan_as_json(group, steps, failures, execute))
        return
    if export:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([*step.partition, step.new_offset] for step in steps)
    elif steps:
        print_steps(steps)
    done = len(steps) - len(failures)
    text = f"{counted(done, 'offset')} of group {group}"
    words = f"{text} set" if execute else f"{text} would be set; --execute does it"
    print(words, file=sys.stderr)


def _plan_as_json(
    group: str, steps: Sequence[Step], failures: dict[TopicPartition, str], execute: bool
) -> JsonValue:
    return {
        "group": group,
        "executed": execute,
        "partitions": [
            step_as_json(step) | {"error": failures.get(step.partition)} for step in steps
        ],
    }
