"""`ottla brokers`: show the brokers of a cluster, and unregister those that are gone for good."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from ottla.cli.errors import OK, DataError, UsageError
from ottla.cli.options import BootstrapServer, CommandConfig, Json, connect
from ottla.cli.output import Column, JsonValue, print_json, print_table
from ottla.client.brokers import BrokerListing, list_brokers, unregister_broker
from ottla.client.topics.topics import describe_topics

brokers = App(name="brokers", help="Show the brokers of a cluster, or unregister one.")

BrokerId = Annotated[int, Parameter(name="--broker", help="The id of a broker.")]
_COLUMNS = [
    Column("broker", True),
    Column("host"),
    Column("port", True),
    Column("rack"),
    Column("state"),
    Column("leads", True),
    Column("replicas", True),
    Column("not in sync", True),
]
_PARTITION_COLUMNS = [
    Column("topic"),
    Column("partition", True),
    Column("role"),
    Column("in sync"),
]


@brokers.command(name="list", sort_key=1)
def list_(
    *,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """List all registered brokers. A fenced one does not run, or has not caught up yet."""
    with connect(bootstrap_server, command_config) as client:
        found = list_brokers(client)
    if json:
        print_json([_as_json(each) for each in found])
    else:
        print_table(_COLUMNS, [_row(each) for each in found])
    return OK


@brokers.command(sort_key=2)
def describe(
    broker: BrokerId,
    *,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Show a broker and the partitions that it has."""
    with connect(bootstrap_server, command_config) as client:
        found = next((each for each in list_brokers(client) if each.broker_id == broker), None)
        if found is None:
            raise DataError(f"there is no broker {broker}; `ottla brokers list` shows all brokers")
        partitions = [
            (topic.name, each)
            for topic in describe_topics(client, None)
            for each in topic.partitions
            if broker in each.replicas
        ]
    if json:
        listed: list[JsonValue] = [
            {
                "topic": name,
                "partition": each.partition,
                "leads": each.leader == broker,
                "in_sync": broker in each.isr,
            }
            for name, each in partitions
        ]
        print_json({**_as_json(found), "partitions": listed})
        return OK
    print_table(_COLUMNS, [_row(found)])
    rows = [
        [
            name,
            str(each.partition),
            "leader" if each.leader == broker else "follower",
            "yes" if broker in each.isr else "no",
        ]
        for name, each in partitions
    ]
    print_table(_PARTITION_COLUMNS, rows, empty="It has no partitions.")
    return OK


@brokers.command(sort_key=3)
def unregister(
    broker: BrokerId,
    *,
    force: Annotated[
        bool,
        Parameter(help="Unregister the broker even if it has replicas.", show_default=False),
    ] = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Remove a broker from the cluster for good. Stop it before, or it registers again."""
    with connect(bootstrap_server, command_config) as client:
        found = next((each for each in list_brokers(client) if each.broker_id == broker), None)
        if found is not None and not found.is_fenced:
            raise UsageError(f"broker {broker} is running: stop it first")
        if found is not None and found.replica_count and not force:
            raise UsageError(
                f"broker {broker} has {found.replica_count} replicas: move them with"
                " `ottla reassign`, or add --force"
            )
        unregister_broker(client, broker)
    print(f"broker {broker}: unregistered")
    return OK


def _row(broker: BrokerListing) -> list[str]:
    return [
        str(broker.broker_id),
        broker.host,
        str(broker.port),
        broker.rack or "-",
        "fenced" if broker.is_fenced else "running",
        str(broker.leader_count),
        str(broker.replica_count),
        str(broker.out_of_sync_count),
    ]


def _as_json(broker: BrokerListing) -> dict[str, JsonValue]:
    return {
        "id": broker.broker_id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "fenced": broker.is_fenced,
        "leads": broker.leader_count,
        "replicas": broker.replica_count,
        "not_in_sync": broker.out_of_sync_count,
    }
