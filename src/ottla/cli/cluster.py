"""`ottla cluster`: show a cluster and its brokers."""

from __future__ import annotations

from cyclopts import App

from ottla.cli.errors import OK
from ottla.cli.options import BootstrapServer, CommandConfig, Json, connect
from ottla.cli.output import Column, JsonValue, print_json, print_table
from ottla.client.cluster import NO_NODE
from ottla.client.cluster_description import ClusterDescription, describe_cluster

cluster = App(name="cluster", help="Show the cluster and its brokers.")

_COLUMNS = [
    Column("broker", True),
    Column("host"),
    Column("port", True),
    Column("rack"),
    Column("role"),
]


@cluster.command
def info(
    *,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Show the cluster id, the brokers, the controller, and how many topics there are."""
    with connect(bootstrap_server, command_config) as client:
        found = describe_cluster(client)
    if json:
        print_json(_as_json(found))
        return OK
    counts = f"topics {found.topic_count}  partitions {found.partition_count}"
    print(f"cluster {found.cluster_id or '-'}  brokers {len(found.brokers)}  {counts}")
    if offline := found.offline_partition_count:
        print(f"partitions without a leader {offline}")
    rows = [
        [
            str(broker.broker_id),
            broker.host,
            str(broker.port),
            broker.rack or "-",
            "controller" if broker.broker_id == found.controller_id else "",
        ]
        for broker in found.brokers
    ]
    print_table(_COLUMNS, rows)
    return OK


def _as_json(found: ClusterDescription) -> JsonValue:
    return {
        "cluster_id": found.cluster_id,
        "controller_id": None if found.controller_id == NO_NODE else found.controller_id,
        "brokers": [
            {"id": each.broker_id, "host": each.host, "port": each.port, "rack": each.rack}
            for each in found.brokers
        ],
        "topics": found.topic_count,
        "partitions": found.partition_count,
        "partitions_without_leader": found.offline_partition_count,
    }
