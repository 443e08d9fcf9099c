"""DescribeLogDirs: how large the logs of topics are, on all brokers."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.client.cluster import Client
from ottla.client.deadline import Deadline
from ottla.model.ids import TopicPartition
from ottla.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)


def log_sizes(
    client: Client, partitions: Sequence[TopicPartition], deadline: Deadline
) -> dict[tuple[int, TopicPartition], int]:
    """Return the bytes of each replica, by broker and partition."""
    indexes: dict[str, list[int]] = {}
    for partition in partitions:
        indexes.setdefault(partition.topic, []).append(partition.partition)
    request = DescribeLogDirsRequest(
        topics=[
            DescribableLogDirTopic(topic=name, partitions=some) for name, some in indexes.items()
        ]
    )
    sizes = {}
    for node_id in client.brokers:
        connection = client.node(node_id, deadline)
        response = client.call(connection, request, DescribeLogDirsResponse, deadline)
        for directory in response.results:
            for topic in directory.topics:
                for found in topic.partitions:
                    name = TopicPartition(topic.name, found.partition_index)
                    sizes[node_id, name] = found.partition_size
    return sizes
