"""Brings committed metadata into the broker: who follows it, and in which order.

Each part gets the delta and acts on what changed. Nobody keeps an image across a publication:
`node.image` is the current one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.resources import ResourceType

if TYPE_CHECKING:
    from ottla.broker.node import Node


def publish(node: Node, delta: MetadataDelta, image: MetadataImage) -> None:
    """Make the image the broker's, and let every part of the broker follow."""
    node.image = image
    node.topics.image = image
    node.metadata_cache.clear()
    if delta.configs.changed_names(ResourceType.BROKER):
        node.apply_dynamic_config()  # before the logs, whose defaults come from it
    node.hosted_logs.follow(delta)
    if node.started_groups is not None:
        from ottla.broker.groups import follow_metadata

        follow_metadata(node.started_groups, delta, image)  # after the logs it reads
