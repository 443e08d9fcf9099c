"""Brings committed metadata into the broker: who follows it, and in which order.

Each part gets the delta and acts on what changed. Nobody keeps an image across a publication:
`node.image` is the current one.

The logs come first, in steps, because creating one takes a while. Only then the image becomes the
broker's, and requests are answered. So a client that sees a partition can write to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.step_imports import TRANSACTIONS, import_in_steps
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.config_resources import ResourceType
from ottla.model.ids import TRANSACTIONS_TOPIC
from ottla.model.steps import Steps

if TYPE_CHECKING:
    from ottla.broker.node import Node


def prepare(node: Node, delta: MetadataDelta, image: MetadataImage) -> Steps[None]:
    """Let the logs follow what was committed, before others see it."""
    if delta.configs.changed_names(ResourceType.BROKER):
        node.apply_dynamic_config(image)  # before the logs, whose defaults come from it
    if delta.topics.deleted:
        node.topics.image = image  # a partition that is gone is unknown, not led elsewhere
    yield from node.hosted_logs.follow(delta, image)
    if _begins_transactions(node, image):
        yield from import_in_steps(TRANSACTIONS)


def publish(node: Node, delta: MetadataDelta, image: MetadataImage) -> None:
    """Make the image the broker's, and let every part of the broker follow."""
    if node.lifecycle is not None and node.lifecycle.is_running and delta.brokers.changed:
        node.lifecycle.recently_fenced.follow(node.image, delta)
    node.image = image
    node.topics.image = image
    node.metadata_cache.clear()
    if node.replica_fetchers is not None:
        node.replica_fetchers.follow(delta)  # after the logs it fetches for
    if node.lifecycle is not None:
        node.lifecycle.metadata_changed(delta)
        node.directory_assignments.follow(delta)
    if node.controller_registration is not None:
        node.controller_registration.metadata_changed()
    if node.started_groups is not None:
        from ottla.broker.groups import follow_metadata

        follow_metadata(node.started_groups, delta, image)  # after the logs it reads
    _follow_transactions(node, delta, image)
    if node.tier is not None:
        node.tier.follow(delta)  # after the logs it copies


def _follow_transactions(node: Node, delta: MetadataDelta, image: MetadataImage) -> None:
    """Let the transaction coordinator follow. Start it as soon as there may be transactions.

    It does not wait for a request: a transaction may be decided, and need its markers.
    """
    if delta.brokers.changed and node.started_transaction_verifier is not None:
        node.started_transaction_verifier.brokers_changed()
    if node.started_transactions is not None:
        from ottla.broker.transactions import follow_metadata

        follow_metadata(node.started_transactions, delta, image)
    elif _begins_transactions(node, image):
        node.start_transactions()


def _begins_transactions(node: Node, image: MetadataImage) -> bool:
    """Return True if this broker needs a transaction coordinator and has none yet."""
    return (
        node.started_transactions is None
        and TRANSACTIONS_TOPIC in image.topics
        and "broker" in node.config.node.process_roles
    )
