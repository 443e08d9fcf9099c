"""`ottla elect-leaders` and `ottla leaders`: let other replicas lead partitions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from ottla.cli.errors import FAILED, OK, UsageError, complain, tell
from ottla.cli.options import BootstrapServer, CommandConfig, Json, connect, read_plan
from ottla.cli.output import JsonValue, counted, print_json
from ottla.client.cluster import Client
from ottla.client.topics.elections import Elected, ElectionType, elect_leaders
from ottla.client.topics.reassignment_plan import partitions_from_json
from ottla.client.topics.topics import describe_topics
from ottla.model.ids import TopicPartition

leaders = App(name="leaders", help="Let the preferred replicas lead their partitions.")

_NONE: list[str] = []


@leaders.command
def rebalance(
    *,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Let the first replica lead each partition, where it is in sync."""
    with connect(bootstrap_server, command_config) as client:
        results = elect_leaders(client, ElectionType.PREFERRED, None)
    return _report(results, json)


def elect_leaders_command(
    topic: Annotated[
        list[str],
        Parameter(
            name="--topic",
            help="Topics, or one partition of each as name:0. Repeatable.",
            show_default=False,
        ),
    ] = _NONE,
    *,
    type: Annotated[
        Literal["preferred", "unclean"],
        Parameter(
            help="preferred: the first replica leads, if it is in sync. unclean: any replica leads"
            " a partition without a leader. Records that it does not have are lost."
        ),
    ] = "preferred",
    all_topics: Annotated[
        bool, Parameter(help="Elect leaders of all partitions that need it.", show_default=False)
    ] = False,
    from_file: Annotated[
        Path | None,
        Parameter(help='A JSON file {"partitions": [{"topic": "t", "partition": 0}]}.'),
    ] = None,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Elect leaders of partitions."""
    if (bool(topic), all_topics, from_file is not None).count(True) != 1:
        raise UsageError("give one of topics, --all-topics and --from-file")
    election = ElectionType[type.upper()]
    named = None
    if from_file is not None:
        named = read_plan(from_file, partitions_from_json)
    with connect(bootstrap_server, command_config) as client:
        if topic:
            named = _partitions(client, topic)
        results = elect_leaders(client, election, named)
    return _report(results, json)


def _partitions(client: Client, topics: Sequence[str]) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    whole: list[str] = []
    for text in topics:
        name, colon, index = text.rpartition(":")
        if not colon:
            whole.append(text)
        elif not (index.isascii() and index.isdigit()):
            raise UsageError(f"--topic {text!r} should be a topic, or name:0 for a partition")
        else:
            found.append(TopicPartition(name, int(index)))
    if whole:
        found += [
            TopicPartition(topic.name, each.partition)
            for topic in describe_topics(client, whole)
            for each in topic.partitions
        ]
    return found


def _report(results: Sequence[Elected], json: bool) -> int:
    changed = [each for each in results if each.error is None]
    failed = [each for each in results if each.error is not None and not each.was_not_needed]
    for each in failed:
        complain(str(each.error))
    if json:
        listed: list[JsonValue] = [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "elected": each.error is None,
                "error": None if each.error is None else str(each.error),
            }
            for each in results
        ]
        print_json(listed)
    else:
        for each in changed:
            print(f"{each.partition}: has its leader now")
        if not changed and not failed:
            tell("All partitions have the wanted leaders already.")
        elif changed:
            tell(f"{counted(len(changed), 'partition')} changed.")
    return FAILED if failed else OK
