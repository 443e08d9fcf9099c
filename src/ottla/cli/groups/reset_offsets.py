"""`ottla groups reset-offsets`: plan new offsets, and commit them with --execute."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from cyclopts import Parameter
from cyclopts.types import NonNegativeInt

from ottla.cli.errors import FAILED, OK, DataError, UsageError, complain, tell
from ottla.cli.groups.view import print_steps, step_as_json
from ottla.cli.options import BootstrapServer, CommandConfig, Json, connect
from ottla.cli.output import JsonValue, counted, print_json
from ottla.cli.times import duration_ms, timestamp_ms
from ottla.client.cluster import Client
from ottla.client.groups.offsets import commit_offsets
from ottla.client.groups.reset import (
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
from ottla.client.topics.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.model.ids import TopicPartition

ScopeNames = Annotated[
    list[str],
    Parameter(
        help="A topic, or some of its partitions as topic:0,1,2. Repeatable.",
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
    """The options for the new offsets. Exactly one must be given."""

    to_earliest: Annotated[
        bool, Parameter(help="Set to the oldest record.", show_default=False)
    ] = False
    to_latest: Annotated[
        bool,
        Parameter(help="Set to the end of the log, to read only new records.", show_default=False),
    ] = False
    to_datetime: Annotated[
        str | None,
        Parameter(
            help="Set to the first record at or after this time: 2026-01-31T12:00:00, or"
            " milliseconds since 1970."
        ),
    ] = None
    by_duration: Annotated[
        str | None,
        Parameter(help="Set to the first record that is at most this old: 1d12h30m or P1DT12H30M."),
    ] = None
    shift_by: Annotated[
        int | None,
        Parameter(
            help="Move forward by this many offsets, or back if negative.",
            allow_leading_hyphen=True,
        ),
    ] = None
    to_offset: Annotated[NonNegativeInt | None, Parameter(help="Set to this offset.")] = None
    to_current: Annotated[
        bool,
        Parameter(
            help="Keep the committed offsets; set to the end where there is none.",
            show_default=False,
        ),
    ] = False
    from_file: Annotated[
        str | None,
        Parameter(
            help="Set to the offsets in a CSV file of topic,partition,offset lines; - is stdin.",
            allow_leading_hyphen=True,
        ),
    ] = None

    def target(self) -> Target:
        """Return the given target. Raise UsageError if there is none, or more than one."""
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
        bool, Parameter(help="All topics for which the group has offsets.", show_default=False)
    ] = False,
    to: TargetOptions = _NO_TARGET,
    execute: Annotated[
        bool,
        Parameter(
            help="Apply the change. Without this option, only show what would change.",
            show_default=False,
        ),
    ] = False,
    export: Annotated[
        bool,
        Parameter(help="Print the plan as CSV, in the format of --from-file.", show_default=False),
    ] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Set the offsets of a group without members. Without --execute, only show what would change.

    If a partition does not have an offset, the nearest one is used and marked with a star.
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
    """Parse a topic name, or topic:0,1,2."""
    name, colon, numbers = text.partition(":")
    parts = numbers.split(",") if colon else []
    if not name or not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"--topic {text!r} should be a topic name, or topic:0,1,2")
    return TopicScope(name, [int(part) for part in parts])


def named_partitions(client: Client, scopes: Sequence[TopicScope]) -> list[TopicPartition]:
    """Return the named partitions, and all partitions of topics named without any.

    Only the latter are looked up, because the topic of a named partition may be deleted.
    """
    whole = [scope for scope in scopes if not scope.partitions]
    named = [TopicPartition(topic, p) for topic, partitions in scopes for p in partitions]
    return sorted({*named, *scope_of_topics(client, whole)})


def _time_ago_ms(duration: str) -> int:
    return max(0, int(time.time() * 1000) - duration_ms(duration, "--by-duration"))


def _check_scope(target: Target, scopes: Sequence[TopicScope], all_topics: bool) -> None:
    if scopes and all_topics:
        raise UsageError("give either --topic or --all-topics")
    if not scopes and not all_topics and not isinstance(target, ToOffsets):
        raise UsageError("give --topic or --all-topics to choose the topics")


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
    """Return the offsets in a CSV file. Raise DataError that names the first wrong line."""
    try:
        if path == "-":
            return _parse_csv("stdin", sys.stdin.read())
        with open(path, encoding="utf-8", newline="") as file:
            return _parse_csv(path, file.read())
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from None


def _parse_csv(path: str, text: str) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(text.splitlines()), start=1):
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if len(cells) != _CSV_FIELDS or not all(c.isascii() and c.isdigit() for c in cells[1:]):
            raise DataError(f"{path}, line {number}: expected topic,partition,offset")
        partition = TopicPartition(cells[0], int(cells[1]))
        if partition in offsets:
            raise DataError(f"{path}, line {number}: {partition} is there twice")
        offsets[partition] = int(cells[2])
    if not offsets:
        raise DataError(f"{path} has no offsets; expected lines of topic,partition,offset")
    return offsets


def _execute(client: Client, group: str, steps: Sequence[Step]) -> dict[TopicPartition, str]:
    """Commit a plan. Return the error messages of the partitions that failed."""
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
    words = f"{text} set" if execute else f"{text} would be set; add --execute to set them"
    tell(words)


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
