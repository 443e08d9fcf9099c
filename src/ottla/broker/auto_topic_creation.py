"""Creates topics that clients ask for: by Metadata, or __consumer_offsets by FindCoordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from ottla.broker.node import Node
from ottla.controller.decision import MAX_PER_REQUEST
from ottla.controller.topics import NewTopic, create_topics
from ottla.coordinator.groups.internal_topic import offsets_topic
from ottla.model.errors import ApiError
from ottla.model.ids import OFFSETS_TOPIC


def auto_create(
    node: Node, names: Sequence[str], done: Callable[[Mapping[str, ApiError]], None]
) -> None:
    """Create topics; `done` gets the errors of those that cannot be created.

    If another request is creating a topic already, this waits for it. Such a topic has an error
    here and is in the image, so look at the image first.
    """
    errors: dict[str, ApiError] = {}
    groups = list(_decisions(node, names))
    left = len(groups)

    def committed(relying: Sequence[str], failure: ApiError | None) -> None:
        nonlocal left
        if failure is not None:
            errors.update(dict.fromkeys(relying, failure))
        left -= 1
        if not left:
            done(errors)

    for group in groups:
        is_doubtful = node.controller.has_uncommitted
        decision = create_topics(
            node.controller.latest_image,
            node.config,
            node.ports.random,
            [_new_topic(node, name) for name in group],
        )
        errors.update({each.name: each.error for each in decision.results if each.error})
        # An error that relies on uncommitted changes means nothing if these fail.
        made = [each.name for each in decision.results if each.error is None]
        relying = group if is_doubtful else made
        node.controller.submit(decision.records, partial(committed, relying))


def _decisions(node: Node, names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Return the names in parts that the controller decides about at a time."""
    most = max(MAX_PER_REQUEST // node.config.topics.num_partitions, 1)
    for start in range(0, len(names), most):
        yield names[start : start + most]


def _new_topic(node: Node, name: str) -> NewTopic:
    if name == OFFSETS_TOPIC:
        return offsets_topic(node.config.offsets, len(node.image.brokers))
    return NewTopic(name)
