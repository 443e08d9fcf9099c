"""The brokers of a cluster: those that run, and those that are only registered."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ottla.client.cluster import Client
from ottla.client.errors import check
from ottla.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


class BrokerListing(NamedTuple):
    """A registered broker, and what it has."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool
    """True if it does not run, or has not caught up yet."""
    leader_count: int
    replica_count: int
    out_of_sync_count: int
    """How many of its replicas are not in sync."""


def list_brokers(client: Client) -> list[BrokerListing]:
    """Return all brokers by id. Brokers older than Kafka 4.0 do not tell which are fenced."""
    deadline = client.deadline("listing brokers")
    request = DescribeClusterRequest(include_fenced_brokers=True)

    def ask() -> list[BrokerListing]:
        topics = client.metadata(None, deadline)
        response = client.call(client.any(deadline), request, DescribeClusterResponse, deadline)
        check(response.error_code, "the brokers of the cluster", response.error_message)
        leaders: Counter[int] = Counter()
        replicas: Counter[int] = Counter()
        in_sync: Counter[int] = Counter()
        for topic in topics:
            for partition in topic.partitions:
                leaders[partition.leader_id] += 1
                replicas.update(partition.replica_nodes)
                in_sync.update(partition.isr_nodes)
        return sorted(
            BrokerListing(
                each.broker_id,
                each.host,
                each.port,
                each.rack,
                each.is_fenced,
                leaders[each.broker_id],
                replicas[each.broker_id],
                replicas[each.broker_id] - in_sync[each.broker_id],
            )
            for each in response.brokers
        )

    return client.retry(ask, deadline, harmless_twice=True)


def unregister_broker(client: Client, broker_id: int) -> None:
    """Remove a broker from the cluster for good."""
    deadline = client.deadline(f"unregistering broker {broker_id}")
    request = UnregisterBrokerRequest(broker_id=broker_id)

    def ask() -> None:
        connection = client.controller(deadline)
        response = client.call(connection, request, UnregisterBrokerResponse, deadline)
        check(response.error_code, f"broker {broker_id}", response.error_message)

    client.retry(ask, deadline, harmless_twice=False)
