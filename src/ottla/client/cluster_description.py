"""A cluster as a whole: its id, its brokers, and how much it holds."""

from __future__ import annotations

from typing import NamedTuple

from ottla.client.cluster import NO_NODE, Client
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse


class BrokerDescription(NamedTuple):
    """A broker and where it listens."""

    broker_id: int
    host: str
    port: int
    rack: str | None


class ClusterDescription(NamedTuple):
    """What one Metadata response says about the cluster."""

    cluster_id: str | None
    controller_id: int
    brokers: list[BrokerDescription]
    topic_count: int
    partition_count: int
    offline_partition_count: int


def describe_cluster(client: Client) -> ClusterDescription:
    """Return the brokers of the cluster, by id, and the number of its topics and partitions."""
    deadline = client.deadline("describing the cluster")
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)

    def ask() -> MetadataResponse:
        return client.call(client.any(deadline), request, MetadataResponse, deadline)

    response = client.retry(ask, deadline, harmless_twice=True)
    brokers = [
        BrokerDescription(broker.node_id, broker.host, broker.port, broker.rack)
        for broker in response.brokers
    ]
    leaders = [each.leader_id for topic in response.topics for each in topic.partitions]
    return ClusterDescription(
        response.cluster_id,
        response.controller_id,
        sorted(brokers),
        len(response.topics),
        len(leaders),
        leaders.count(NO_NODE),
    )
