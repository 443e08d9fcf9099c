"""The transactions that are open on partitions, and the markers that end them (KIP-664)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from ottla.client.cluster import NO_NODE, Client
from ottla.client.errors import Refused, check
from ottla.client.topics.route import check_partition, find_route
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


class OpenTransaction(NamedTuple):
    """A transaction on one partition that has no marker yet."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """Of the coordinator that wrote the producer's last marker; -1 if there is none."""
    start_offset: int
    last_timestamp: int


def open_transactions(
    client: Client, topic: str, partitions: Iterable[int] | None = None
) -> list[OpenTransaction]:
    """Return the open transactions on partitions of a topic, on all of them with None."""
    deadline = client.deadline(f"describing the producers of {topic}")

    def ask() -> list[OpenTransaction]:
        route = find_route(client, topic, deadline)
        by_leader: defaultdict[int, list[int]] = defaultdict(list)
        for index in route.leaders if partitions is None else partitions:
            check_partition(route, index)
            by_leader[route.leaders[index]].append(index)
        found: list[OpenTransaction] = []
        for leader, indexes in by_leader.items():
            if leader == NO_NODE:
                raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{indexes[0]}")
            request = DescribeProducersRequest(
                topics=[TopicRequest(name=topic, partition_indexes=indexes)]
            )
            connection = client.node(leader, deadline)
            response = client.call(connection, request, DescribeProducersResponse, deadline)
            found += _open(response)
        return found

    return client.retry(ask, deadline, harmless_twice=True)


def _open(response: DescribeProducersResponse) -> list[OpenTransaction]:
    found = []
    for topic in response.topics:
        for described in topic.partitions:
            partition = TopicPartition(topic.name, described.partition_index)
            check(described.error_code, str(partition), described.error_message)
            found += [
                OpenTransaction(
                    partition,
                    producer.producer_id,
                    producer.producer_epoch,
                    producer.coordinator_epoch,
                    producer.current_txn_start_offset,
                    producer.last_timestamp,
                )
                for producer in described.active_producers
                if producer.current_txn_start_offset >= 0
            ]
    return found


def abort_on_partition(
    client: Client,
    partition: TopicPartition,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
) -> None:
    """Write the marker that aborts a producer's transaction on a partition, whoever began it."""
    subject = f"aborting the transaction of producer {producer_id} on {partition}"
    deadline = client.deadline(subject)
    topic = WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        coordinator_epoch=max(coordinator_epoch, 0),
        topics=[topic],
    )

    def ask() -> None:
        route = find_route(client, partition.topic, deadline)
        check_partition(route, partition.partition)
        leader = route.leaders[partition.partition]
        if leader == NO_NODE:
            raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, str(partition))
        connection = client.node(leader, deadline)
        request = WriteTxnMarkersRequest(markers=[marker])
        response = client.call(connection, request, WriteTxnMarkersResponse, deadline)
        for result in response.markers:
            for each in result.topics:
                for written in each.partitions:
                    check(written.error_code, subject)

    client.retry(ask, deadline, harmless_twice=True)
