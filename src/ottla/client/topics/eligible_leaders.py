"""Eligible leader replicas of partitions (KIP-966). Brokers older than Kafka 4.0 have none."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.client.cluster import Client
from ottla.client.deadline import Deadline
from ottla.client.errors import ProtocolViolation, UnsupportedByBroker
from ottla.model.ids import TopicPartition
from ottla.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    RequestCursor,
    TopicRequest,
)


def eligible_leaders(
    client: Client, topics: Sequence[str], deadline: Deadline
) -> dict[TopicPartition, list[int]]:
    """Return the eligible leaders of the partitions that have some."""
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in topics])
    found: dict[TopicPartition, list[int]] = {}
    before = "", -1
    while True:
        connection = client.any(deadline)
        try:
            connection.version_of(DescribeTopicPartitionsRequest)
        except UnsupportedByBroker:
            return {}
        response = client.call(connection, request, DescribeTopicPartitionsResponse, deadline)
        for topic in response.topics:
            for each in topic.partitions:
                if each.eligible_leader_replicas:
                    name = TopicPartition(topic.name or "", each.partition_index)
                    found[name] = list(each.eligible_leader_replicas)
        cursor = response.next_cursor
        if cursor is None:
            return found
        place = cursor.topic_name, cursor.partition_index
        if place <= before:
            raise ProtocolViolation(f"{connection.address} answers with the same page again")
        before = place
        request.cursor = RequestCursor(topic_name=place[0], partition_index=place[1])
