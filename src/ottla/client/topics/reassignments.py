"""Moves of replicas between brokers (KIP-455)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.client.cluster import Client
from ottla.client.errors import Refused, check
from ottla.model.ids import TopicPartition
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)


class Reassignment(NamedTuple):
    """The replicas of a partition that is being reassigned, all together, and the changes."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Placed(NamedTuple):
    """The replicas of a partition, and those of them that are in sync."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]


def current_replicas(client: Client, topics: Sequence[str] | None) -> dict[TopicPartition, Placed]:
    """Return the replicas of all partitions of some topics (None: of all topics)."""
    deadline = client.deadline("reading the replicas")

    def ask() -> dict[TopicPartition, Placed]:
        found: dict[TopicPartition, Placed] = {}
        for topic in client.metadata(topics, deadline):
            check(topic.error_code, f"topic {topic.name}")
            for each in topic.partitions:
                name = TopicPartition(topic.name or "", each.partition_index)
                found[name] = Placed(tuple(each.replica_nodes), tuple(each.isr_nodes))
        return dict(sorted(found.items()))

    return client.retry(ask, deadline, harmless_twice=True)


def alter_reassignments(
    client: Client, wanted: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, Refused | None]:
    """Begin to move replicas, or cancel that (None). Return the error of each partition."""
    deadline = client.deadline("reassigning partitions")
    topics: dict[str, list[ReassignablePartition]] = {}
    for (name, index), replicas in wanted.items():
        topics.setdefault(name, []).append(
            ReassignablePartition(
                partition_index=index, replicas=None if replicas is None else list(replicas)
            )
        )
    request = AlterPartitionReassignmentsRequest(
        timeout=int(client.timeout_ms),
        topics=[ReassignableTopic(name=name, partitions=each) for name, each in topics.items()],
    )

    def ask() -> dict[TopicPartition, Refused | None]:
        connection = client.controller(deadline)
        response = client.call(connection, request, AlterPartitionReassignmentsResponse, deadline)
        check(response.error_code, "the reassignment", response.error_message)
        return {
            TopicPartition(topic.name, each.partition_index): (
                Refused(each.error_code, f"{topic.name}-{each.partition_index}", each.error_message)
                if each.error_code
                else None
            )
            for topic in response.responses
            for each in topic.partitions
        }

    return client.retry(ask, deadline, harmless_twice=True)


def list_reassignments(
    client: Client, partitions: Sequence[TopicPartition] | None = None
) -> dict[TopicPartition, Reassignment]:
    """Return the reassignments that are going on, of some partitions or of all (None)."""
    deadline = client.deadline("listing reassignments")
    topics: dict[str, list[int]] = {}
    for name, index in partitions or ():
        topics.setdefault(name, []).append(index)
    request = ListPartitionReassignmentsRequest(
        timeout=int(client.timeout_ms),
        topics=(
            None
            if partitions is None
            else [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=each)
                for name, each in topics.items()
            ]
        ),
    )

    def ask() -> dict[TopicPartition, Reassignment]:
        connection = client.controller(deadline)
        response = client.call(connection, request, ListPartitionReassignmentsResponse, deadline)
        check(response.error_code, "the reassignments", response.error_message)
        return {
            TopicPartition(topic.name, each.partition_index): Reassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in response.topics
            for each in topic.partitions
        }

    return client.retry(ask, deadline, harmless_twice=True)
