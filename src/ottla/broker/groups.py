"""Joins the group coordinator to the node."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.broker.context import RequestContext
from ottla.controller.brokers import GROUP_VERSION
from ottla.coordinator.groups.client import Client
from ottla.coordinator.groups.group_coordinator import GroupCoordinator
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import OFFSETS_TOPIC
from ottla.model.transactions import TransactionEnd

if TYPE_CHECKING:
    from ottla.broker.node import Node

CONSUMER_PROTOCOL: Final = "consumer"


def start_group_coordinator(node: Node) -> GroupCoordinator:
    """Return a group coordinator that loads its groups and follows the node's metadata."""
    groups = GroupCoordinator(node)
    node.hosted_logs.on_log_made.append(groups.host.partition_led)
    node.hosted_logs.on_first_led.append(groups.host.partition_led)
    node.marker_writers[OFFSETS_TOPIC] = partial(_write_marker, groups)
    groups.load()
    return groups


def _write_marker(
    groups: GroupCoordinator, index: int, end: TransactionEnd, done: Callable[[ErrorCode], None]
) -> None:
    """Write the marker that ends a transaction with offsets of groups. Raise ApiError."""
    runtime = groups.runtimes.get(index)
    if runtime is None:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    runtime.write_marker(end, done)


def follow_metadata(groups: GroupCoordinator, delta: MetadataDelta, image: MetadataImage) -> None:
    """Tell the group coordinator what has changed. The hosted logs have followed already."""
    topics, created = delta.topics, delta.topics.created()
    grown = any(topic.has_new_partitions for topic in topics.changed.values())
    deleted = {topic.name: topic.topic_id for topic in topics.deleted.values()}
    if created or grown or deleted:
        groups.topic_patterns.topics_changed([*created, *deleted])
    offsets_topic = image.topics.get(OFFSETS_TOPIC)
    is_changed = offsets_topic is not None and offsets_topic.topic_id in topics.changed
    if is_changed or OFFSETS_TOPIC in deleted:
        groups.host.refresh()
    if deleted:
        groups.topics_deleted(deleted)


def check_consumer_protocol(node: Node) -> None:
    """Raise ApiError if a setting or the level of group.version forbids KIP-848."""
    settings = node.config.consumer_groups
    is_on = CONSUMER_PROTOCOL in settings.group_coordinator_rebalance_protocols
    if not is_on or not node.image.features.get(GROUP_VERSION, 0):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)


def client_of(context: RequestContext) -> Client:
    """Return who sent a request, with the host as Java writes an address."""
    return Client(context.client_id or "", f"/{context.connection.peer_host}", context.version)
