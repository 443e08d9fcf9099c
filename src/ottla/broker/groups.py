"""Joins the group coordinator to the node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.coordinator.groups.client import Client
from ottla.coordinator.groups.group_coordinator import GroupCoordinator
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.ids import OFFSETS_TOPIC

if TYPE_CHECKING:
    from ottla.broker.node import Node


def start_group_coordinator(node: Node) -> GroupCoordinator:
    """Return a group coordinator that loads its groups and follows the node's metadata."""
    groups = GroupCoordinator(node)
    node.hosted_logs.on_log_made.append(groups.host.log_available)
    groups.load()
    return groups


def follow_metadata(groups: GroupCoordinator, delta: MetadataDelta, image: MetadataImage) -> None:
    """Tell the group coordinator what has changed. The hosted logs have followed already."""
    topics, created = delta.topics, delta.topics.created()
    grown = any(topic.has_new_partitions for topic in topics.changed.values())
    deleted = [topic.name for topic in topics.deleted.values()]
    if created or grown or deleted:
        groups.topic_patterns.topics_changed(created)
    offsets_topic = image.topics.get(OFFSETS_TOPIC)
    is_changed = offsets_topic is not None and offsets_topic.topic_id in topics.changed
    if is_changed or OFFSETS_TOPIC in deleted:
        groups.host.refresh()
    for name in deleted:
        groups.topic_deleted(name)


def client_of(context: RequestContext) -> Client:
    """Return who sent a request, with the host as Java writes an address."""
    return Client(context.client_id or "", f"/{context.connection.peer_host}", context.version)
