"""Joins the group coordinator to the node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.controller.topics import create_topics
from ottla.coordinator.groups.client import Client
from ottla.coordinator.groups.group_coordinator import GroupCoordinator
from ottla.coordinator.groups.internal_topic import offsets_topic
from ottla.coordinator.runtime.partitioner import partition_of
from ottla.metadata.records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.model.ids import OFFSETS_TOPIC
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.broker.node import Node


def start_group_coordinator(node: Node) -> GroupCoordinator:
    """Return a group coordinator that loads its groups and follows the node's metadata."""
    groups = GroupCoordinator(node)
    node.controller.listeners.append(_MetadataListener(node, groups).metadata_changed)
    node.hosting.on_log_made.append(groups.host.log_available)
    groups.load()
    return groups


class _MetadataListener:
    """Tells the group coordinator what has changed in the metadata."""

    def __init__(self, node: Node, groups: GroupCoordinator) -> None:
        self._groups = groups
        self._names = {topic.topic_id: topic.name for topic in node.image.topics.values()}

    def metadata_changed(self, records: Sequence[Message]) -> None:
        """Follow new metadata records. The image and the logs have followed them already."""
        groups, names = self._groups, self._names
        created: list[str] = []
        deleted: list[str] = []
        changed: set[str] = set()
        has_new_partitions = False
        for record in records:
            if isinstance(record, TopicRecord):
                names[record.topic_id] = record.name
                created.append(record.name)
            elif isinstance(record, RemoveTopicRecord):
                deleted.append(names.pop(record.topic_id))
            elif isinstance(record, PartitionRecord | PartitionChangeRecord):
                changed.add(names[record.topic_id])
                has_new_partitions |= isinstance(record, PartitionRecord)
        if created or deleted or has_new_partitions:
            groups.topic_patterns.topics_changed(created)
        if OFFSETS_TOPIC in changed or OFFSETS_TOPIC in deleted:
            groups.host.refresh()
        for name in deleted:
            groups.topic_deleted(name)


def find_group_partition(node: Node, group_id: str) -> int:
    """Return a group's partition of __consumer_offsets. Create the topic if it is missing."""
    if OFFSETS_TOPIC not in node.image.topics:
        topic = offsets_topic(node.config.offsets, len(node.image.brokers))
        decision = create_topics(node.image, node.config, node.ports.random, [topic])
        refusal = decision.results[0].error
        if refusal is not None:
            raise refusal
        node.controller.write(decision.records)
    return partition_of(group_id, node.groups.host.num_partitions)


def client_of(context: RequestContext) -> Client:
    """Return who sent a request, with the host as Java writes an address."""
    return Client(context.client_id or "", f"/{context.connection.peer_host}", context.version)
