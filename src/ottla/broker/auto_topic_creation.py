"""Creates topics that clients ask for: by Metadata, or internal ones by FindCoordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from ottla.broker.node import Node
from ottla.controller.decision import MAX_PER_REQUEST
from ottla.controller.topics import NewTopic, create_topics
from ottla.coordinator.groups.internal_topic import offsets_topic
from ottla.coordinator.transactions.internal_topic import transactions_topic
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import OFFSETS_TOPIC, REMOTE_LOG_METADATA_TOPIC, TRANSACTIONS_TOPIC
from ottla.model.steps import Steps
from ottla.wire.message import Message

CREATE_TIMEOUT_MS = 10_000


def auto_create(
    node: Node, names: Sequence[str], done: Callable[[Mapping[str, ApiError]], None]
) -> None:
    """Create topics; `done` gets the errors of those that cannot be created.

    If another request is creating a topic already, this waits for it. Such a topic has an error
    here and is in the image, so look at the image first.
    """
    if not node.controller.is_active:
        _ask_controller(node, names, done)
        return
    errors: dict[str, ApiError] = {}
    groups = list(_groups(node, names))
    left = len(groups)

    def committed(creation: _Creation, failure: ApiError | None) -> None:
        nonlocal left
        errors.update(creation.errors)
        if failure is not None:
            errors.update(dict.fromkeys(creation.relying, failure))
        left -= 1
        if not left:
            done(errors)

    for group in groups:
        creation = _Creation(node, group)
        node.controller.decide(creation.decide, partial(committed, creation))


class _Creation:
    """A decision about some of the topics."""

    def __init__(self, node: Node, names: Sequence[str]) -> None:
        self._node = node
        self._names = names
        self.errors: dict[str, ApiError] = {}
        self.relying = names
        """The topics that get an error if the decision cannot be written."""

    def decide(self, image: MetadataImage) -> Steps[Sequence[Message]]:
        node = self._node
        is_doubtful = node.controller.has_uncommitted
        decision = yield from create_topics(
            image,
            node.config,
            node.ports.random,
            [_new_topic(node, name) for name in self._names],
        )
        self.errors = {each.name: each.error for each in decision.results if each.error}
        if not is_doubtful:
            # An error that relies on uncommitted changes means nothing if these fail.
            self.relying = [each.name for each in decision.results if each.error is None]
        return decision.records


def _ask_controller(
    node: Node, names: Sequence[str], done: Callable[[Mapping[str, ApiError]], None]
) -> None:
    """Ask the active controller to create topics. They arrive with the metadata soon after."""
    from ottla.wire.messages.create_topics import (
        CreatableTopic,
        CreatableTopicConfig,
        CreateTopicsRequest,
        CreateTopicsResponse,
    )

    topics = [_new_topic(node, name) for name in names]
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.num_partitions,
                replication_factor=topic.replication_factor,
                configs=[CreatableTopicConfig(name=k, value=v) for k, v in topic.configs],
            )
            for topic in topics
        ],
        timeout=CREATE_TIMEOUT_MS,
    )

    def answered(result: CreateTopicsResponse | TimeoutError) -> None:
        if isinstance(result, TimeoutError):
            error = ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "there is no active controller")
            done(dict.fromkeys(names, error))
            return
        done(
            {
                topic.name: ApiError(_code(topic.error_code), topic.error_message)
                for topic in result.topics
                if topic.error_code
            }
        )

    node.channel.send(request, 7, CreateTopicsResponse, answered, CREATE_TIMEOUT_MS)


def _code(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _groups(node: Node, names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the names in groups; the controller decides about one group at a time."""
    most = max(MAX_PER_REQUEST // node.config.topics.num_partitions, 1)
    for start in range(0, len(names), most):
        yield names[start : start + most]


def _new_topic(node: Node, name: str) -> NewTopic:
    if name == OFFSETS_TOPIC:
        return offsets_topic(node.config.offsets, is_alone=node.config.is_alone)
    if name == TRANSACTIONS_TOPIC:
        return transactions_topic(node.config.transactions, is_alone=node.config.is_alone)
    if name == REMOTE_LOG_METADATA_TOPIC:
        return _remote_log_metadata_topic(node)
    return NewTopic(name)


def _remote_log_metadata_topic(node: Node) -> NewTopic:
    """Return the topic to create; a broker that is a cluster of its own has the only replica."""
    config = node.config.tiered
    factor = config.rlmm_config_remote_log_metadata_topic_replication_factor
    retention_ms = config.rlmm_config_remote_log_metadata_topic_retention_ms
    return NewTopic(
        REMOTE_LOG_METADATA_TOPIC,
        config.rlmm_config_remote_log_metadata_topic_num_partitions,
        1 if node.config.is_alone else factor,
        configs=[
            ("cleanup.policy", "delete"),
            ("retention.ms", str(retention_ms)),
            ("retention.bytes", "-1"),
            ("remote.storage.enable", "false"),
        ],
    )
