"""`ottla topics`: create, list, describe, alter and delete topics."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, NamedTuple

from cyclopts import App, Parameter
from cyclopts.types import PositiveInt

from ottla.cli.errors import FAILED, OK, UsageError, complain, tell
from ottla.cli.options import (
    BootstrapServer,
    CommandConfig,
    Json,
    connect,
    pairs,
)
from ottla.cli.output import Column, JsonValue, print_json, print_table
from ottla.cli.topics.alter import Altered, alter_in_steps, report_altered
from ottla.cli.topics.leader_logs import logs_of_leaders
from ottla.cli.topics.partition_filter import PartitionFilter
from ottla.cli.topics.view import description_as_json, listing_as_json, print_description
from ottla.client.configs import ConfigChange
from ottla.client.errors import Refused
from ottla.client.topics.topics import (
    BROKER_DEFAULT,
    Outcome,
    create_topics,
    delete_topics,
    describe_topics,
    list_topics,
)
from ottla.model.errors import ErrorCode

topics = App(name="topics", help="Create, list, describe, alter and delete topics.")

Names = Annotated[list[str], Parameter(name="--topic", help="Topic names.")]
SomeNames = Annotated[
    list[str],
    Parameter(name="--topic", help="Topic names. Default: all topics.", show_default=False),
]
Configs = Annotated[
    list[str],
    Parameter(
        help="A topic setting as name=value, such as retention.ms=3600000. Repeatable.",
        show_default=False,
    ),
]
_NONE: list[str] = []
_ALL = PartitionFilter()
_NO_TOPICS = "There are no topics."


class Tolerated(NamedTuple):
    """An error that does not fail the command, and the text to print for it."""

    code: ErrorCode
    words: str


ALREADY_EXISTS = Tolerated(ErrorCode.TOPIC_ALREADY_EXISTS, "already exists")
DOES_NOT_EXIST = Tolerated(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not exist")


@topics.command(sort_key=1)
def create(
    names: Names,
    *,
    partitions: Annotated[
        PositiveInt | None,
        Parameter(help="The number of partitions. Default: the broker's num.partitions."),
    ] = None,
    replication_factor: Annotated[
        PositiveInt | None,
        Parameter(
            help="The number of replicas of each partition. Default: the broker's"
            " default.replication.factor."
        ),
    ] = None,
    config: Configs = _NONE,
    if_not_exists: Annotated[
        bool, Parameter(help="Do not fail if a topic already exists.", show_default=False)
    ] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Create topics."""
    with connect(bootstrap_server, command_config) as client:
        outcomes = create_topics(
            client,
            names,
            partitions=partitions or BROKER_DEFAULT,
            replication_factor=replication_factor or BROKER_DEFAULT,
            configs=pairs(config, "--config"),
        )
    return _report(outcomes, "created", ALREADY_EXISTS if if_not_exists else None, json)


@topics.command(name="list", sort_key=2)
def list_(
    *,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """List topics. Without a terminal, print only their names, one per line."""
    with connect(bootstrap_server, command_config) as client:
        listings = list_topics(client)
    if json:
        print_json([listing_as_json(listing) for listing in listings])
    elif sys.stdout.isatty():
        print_table(
            [
                Column("topic"),
                Column("partitions", True),
                Column("replication", True),
                Column("id", is_id=True, is_extra=True),
            ],
            [
                [
                    listing.name,
                    str(listing.partition_count),
                    str(listing.replication_factor),
                    listing.topic_id or "-",
                ]
                for listing in listings
            ],
            empty=_NO_TOPICS,
        )
    else:
        for listing in listings:
            print(listing.name)
        if not listings:
            tell(_NO_TOPICS)
    return OK


@topics.command(sort_key=3)
def describe(
    names: SomeNames = _NONE,
    *,
    only: PartitionFilter = _ALL,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Show the id, partitions, leaders, replicas, offsets, sizes and own settings of topics.

    Sizes are those of the leaders' logs. `dirty` is for compacted topics: of the bytes that can be
    cleaned now, the share that was written since the last clean. `last clean` is `-` if there was
    none since the broker started.
    """
    with connect(bootstrap_server, command_config) as client:
        descriptions = only.of(describe_topics(client, names or None))
        logs = logs_of_leaders(client, descriptions)
    if json:
        print_json([description_as_json(description, logs) for description in descriptions])
    else:
        for description in descriptions:
            print_description(description, logs)
        if not descriptions:
            tell("No partition matches." if only.is_asked_for else _NO_TOPICS)
    return OK


@topics.command(sort_key=4)
def alter(
    names: Names,
    *,
    partitions: Annotated[
        PositiveInt | None, Parameter(help="The new number of partitions. It can only increase.")
    ] = None,
    config: Configs = _NONE,
    delete_config: Annotated[
        list[str],
        Parameter(
            help="A topic setting to reset to the broker's default. Repeatable.",
            show_default=False,
        ),
    ] = _NONE,
    if_exists: Annotated[
        bool, Parameter(help="Do not fail if a topic does not exist.", show_default=False)
    ] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Add partitions to topics, or change their settings."""
    change = ConfigChange(pairs(config, "--config"), delete_config)
    if partitions is None and not change.to_set and not delete_config:
        raise UsageError("nothing to alter: give --partitions, --config or --delete-config")
    for name in change.both:
        raise UsageError(f"{name} is both set and deleted")
    results: dict[str, Altered] = {}
    with connect(bootstrap_server, command_config) as client:
        for name in names:
            results[name] = alter_in_steps(client, name, change, partitions)
            if not isinstance(results[name].error, Refused | None):
                break  # the broker is away: the other topics would only wait for it as well
    return report_altered(names, results, if_exists, json)


@topics.command(sort_key=5)
def delete(
    names: Names,
    *,
    if_exists: Annotated[
        bool, Parameter(help="Do not fail if a topic does not exist.", show_default=False)
    ] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Delete topics and all their records."""
    with connect(bootstrap_server, command_config) as client:
        outcomes = delete_topics(client, names)
    return _report(outcomes, "deleted", DOES_NOT_EXIST if if_exists else None, json)


def _report(outcomes: Sequence[Outcome], done: str, tolerated: Tolerated | None, json: bool) -> int:
    """Print the result for each topic. Return FAILED if one has an error that is not tolerated."""
    failed = False
    report: list[JsonValue] = []
    for name, topic_id, error in outcomes:
        report.append({"name": name, "id": topic_id, done: error is None, "error": _text(error)})
        if error is None:
            words = done
        elif tolerated is not None and error.code == tolerated.code:
            words = tolerated.words
        else:
            failed = True
            complain(str(error))
            continue
        if not json:
            print(f"{name}: {words}")
    if json:
        print_json(report)
    return FAILED if failed else OK


def _text(error: Refused | None) -> str | None:
    return None if error is None else str(error)
