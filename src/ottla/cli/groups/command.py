"""`ottla groups`: list, describe, reset and delete groups and their offsets."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Final

from cyclopts import App, Parameter

from ottla.cli.errors import FAILED, OK, UsageError, complain, tell
from ottla.cli.groups.reset_offsets import ScopeNames, named_partitions, parse_scope, reset_offsets
from ottla.cli.groups.view import (
    LISTING_COLUMNS,
    lag_as_json,
    listing_as_json,
    listing_row,
    members_as_json,
    print_lag,
    print_members,
)
from ottla.cli.options import BootstrapServer, CommandConfig, Json, connect
from ottla.cli.output import JsonValue, print_json, print_table
from ottla.client.cluster import Client
from ottla.client.errors import Refused
from ottla.client.groups.groups import GroupOutcome, delete_groups, describe_groups, list_groups
from ottla.client.groups.lag import group_lag
from ottla.client.groups.members import GroupDescription
from ottla.client.groups.offsets import PartitionOutcome, delete_offsets
from ottla.client.groups.reset import scope_of_group
from ottla.model.errors import ErrorCode

groups = App(name="groups", help="List, describe, reset and delete consumer groups.")
groups.command(reset_offsets, sort_key=4)

Names = Annotated[list[str], Parameter(name="--group", help="Group names.")]
SomeNames = Annotated[
    list[str],
    Parameter(name="--group", help="Group names. Default: all groups.", show_default=False),
]
STATES: Final = (
    *("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"),
    *("Assigning", "Reconciling", "NotReady"),
)
TYPES: Final = ("classic", "consumer", "share", "streams")
_NONE: list[str] = []
_NO_GROUPS = "There are no groups."
_NONE_LIKE_THAT = "There are no such groups."


@groups.command(name="list", sort_key=1)
def list_(
    *,
    state: Annotated[
        list[str],
        Parameter(
            help=f"List only groups in this state: {', '.join(STATES)}. Repeatable.",
            show_default=False,
        ),
    ] = _NONE,
    type: Annotated[
        list[str],
        Parameter(
            help=f"List only groups of this type: {', '.join(TYPES)}. Repeatable.",
            show_default=False,
        ),
    ] = _NONE,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """List groups. Without a terminal, print only their names, one per line."""
    _check_words("--state", state, STATES)
    _check_words("--type", type, TYPES)
    with connect(bootstrap_server, command_config) as client:
        listings = list_groups(client, states=state, types=type)
    empty = _NONE_LIKE_THAT if state or type else _NO_GROUPS
    if json:
        print_json([listing_as_json(listing) for listing in listings])
    elif sys.stdout.isatty():
        rows = [listing_row(listing) for listing in listings]
        print_table(LISTING_COLUMNS, rows, empty=empty)
    else:
        for listing in listings:
            print(listing.group)
        if not listings:
            tell(empty)
    return OK


def _check_words(option: str, given: Sequence[str], known: Sequence[str]) -> None:
    """Raise UsageError for an unknown word. It would match no group and list nothing."""
    for word in given:
        if word.lower() not in map(str.lower, known):
            raise UsageError(
                f"{option} {word!r} is unknown; it should be one of {', '.join(known)}"
            )


@groups.command(sort_key=2)
def describe(
    names: SomeNames = _NONE,
    *,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Show the state, assignor and coordinator of groups, and the offsets and lag of partitions."""
    with connect(bootstrap_server, command_config) as client:
        found = [(group, group_lag(client, group)) for group in _described(client, names)]
    if json:
        print_json([lag_as_json(group, partitions) for group, partitions in found])
    else:
        for group, partitions in found:
            print_lag(group, partitions)
        if not found:
            tell(_NO_GROUPS)
    return OK


@groups.command(sort_key=3)
def members(
    names: SomeNames = _NONE,
    *,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Show the members of groups, their subscriptions and their assigned partitions."""
    with connect(bootstrap_server, command_config) as client:
        found = _described(client, names)
    if json:
        print_json([members_as_json(group) for group in found])
    else:
        for group in found:
            print_members(group)
        if not found:
            tell(_NO_GROUPS)
    return OK


@groups.command(sort_key=5)
def delete(
    names: Names,
    *,
    if_exists: Annotated[
        bool, Parameter(help="Do not fail if a group does not exist.", show_default=False)
    ] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Delete groups that have no members, with all their offsets."""
    with connect(bootstrap_server, command_config) as client:
        outcomes = delete_groups(client, names)
    return _report_groups(outcomes, if_exists, json)


@groups.command(name="delete-offsets", sort_key=6)
def delete_offsets_(
    group: Annotated[str, Parameter(name="--group", help="The group.")],
    *,
    topic: ScopeNames = _NONE,
    all_topics: Annotated[
        bool, Parameter(help="All topics for which the group has offsets.", show_default=False)
    ] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Delete a group's offsets for topics that no member is subscribed to."""
    scopes = [parse_scope(text) for text in topic]
    if bool(scopes) == all_topics:
        raise UsageError("give either --topic or --all-topics")
    with connect(bootstrap_server, command_config) as client:
        partitions = (
            scope_of_group(client, group) if all_topics else named_partitions(client, scopes)
        )
        outcomes = delete_offsets(client, group, partitions) if partitions else []
    return _report_partitions(outcomes, json)


def _described(client: Client, names: Sequence[str]) -> list[GroupDescription]:
    """Return the named groups, or all groups that can be described."""
    if names:
        return describe_groups(client, names)
    found = [listing.group for listing in list_groups(client) if listing.group_type != "share"]
    return describe_groups(client, found)


def _report_groups(outcomes: Sequence[GroupOutcome], if_exists: bool, json: bool) -> int:
    """Print the result for each group. Return FAILED if one has an error that is not tolerated."""
    failed = False
    for group, error in outcomes:
        is_gone = error is not None and error.code == ErrorCode.GROUP_ID_NOT_FOUND
        if error is not None and not (if_exists and is_gone):
            failed = True
            complain(str(error))
        elif not json:
            print(f"{group}: {'deleted' if error is None else 'does not exist'}")
    if json:
        report: list[JsonValue] = [
            {"group": group, "deleted": error is None, "error": _text(error)}
            for group, error in outcomes
        ]
        print_json(report)
    return FAILED if failed else OK


def _report_partitions(outcomes: Sequence[PartitionOutcome], json: bool) -> int:
    """Print the result for each partition. Return FAILED if one has an error."""
    for partition, error in outcomes:
        if error is not None:
            complain(str(error))
        elif not json:
            print(f"{partition}: offset deleted")
    if not outcomes:
        tell("There are no offsets to delete.")
    if json:
        report: list[JsonValue] = [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "deleted": error is None,
                "error": _text(error),
            }
            for partition, error in outcomes
        ]
        print_json(report)
    return FAILED if any(outcome.error for outcome in outcomes) else OK


def _text(error: Refused | None) -> str | None:
    return None if error is None else str(error)
