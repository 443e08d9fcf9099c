"""CreateTopics, versions 2 to 7 (KIP-464 defaults, KIP-525 settings, KIP-516 ids)."""

from __future__ import annotations

from typing import TypeAlias

from ottla.broker.context import RequestContext
from ottla.broker.controller_decisions import carry_out, error_fields
from ottla.broker.node import Node
from ottla.config.describe import describe_topic
from ottla.controller.decision import Decision
from ottla.controller.topics import CreatedTopic, NewTopic, create_topics
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.model.steps import Steps, in_steps
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

FIRST_WITH_CONFIGS = 5
MOST_DESCRIBED = 1000
"""How many topics of a request get their settings in the response."""

Configs: TypeAlias = tuple[tuple[str, str | None], ...]


def handle(node: Node, request: CreateTopicsRequest, context: RequestContext) -> None:
    """Answer each topic's id and settings, or why it was not created."""
    configs: dict[str, Configs] = {}
    described = _DescribedTopics(node)

    def decide(image: MetadataImage) -> Steps[Decision[CreatedTopic]]:
        topics = yield from in_steps(_new_topic, request.topics)
        configs.update((topic.name, tuple(topic.configs)) for topic in topics)
        return (yield from create_topics(image, node.config, node.ports.random, topics))

    def result(each: tuple[CreatedTopic, ApiError | None]) -> CreatableTopicResult:
        created, error = each
        if error is not None:
            return _failure(created.name, error)
        success = _success(created, request.validate_only)
        if context.version >= FIRST_WITH_CONFIGS:
            described.add_configs(success, configs[created.name])
        return success

    carry_out(
        node,
        context,
        decide,
        lambda results: CreateTopicsResponse(topics=LazyList(result, results)),
        validate_only=request.validate_only,
    )


def refuse(
    request: CreateTopicsRequest, error: ApiError, context: RequestContext
) -> CreateTopicsResponse:
    """Return the error for every topic."""
    return CreateTopicsResponse(
        topics=LazyList(lambda topic: _failure(topic.name, error), request.topics)
    )


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(each.partition_index, each.broker_ids) for each in topic.assignments],
        tuple((each.name, each.value) for each in topic.configs),
    )


def _success(created: CreatedTopic, validate_only: bool) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=created.name,
        topic_id=ZERO_UUID if validate_only else created.topic_id,
        error_message=None,
        num_partitions=created.num_partitions,
        replication_factor=created.replication_factor,
    )


def _failure(name: str, error: ApiError) -> CreatableTopicResult:
    code, message = error_fields(error)
    return CreatableTopicResult(name=name, error_code=code, error_message=message)


class _DescribedTopics:
    """Adds settings to the results of one request, as long as these are not too many.

    The settings of a topic take a hundred times the bytes of its name in the request.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._count = 0
        self._known: dict[Configs, list[CreatableTopicConfigs]] = {}

    def add_configs(self, result: CreatableTopicResult, configs: Configs) -> None:
        """Add the settings of a topic with these overrides, or an error in their place."""
        self._count += 1
        if self._count > MOST_DESCRIBED:
            result.topic_config_error_code = ErrorCode.POLICY_VIOLATION
            return
        if configs not in self._known:
            self._known[configs] = _configs(self._node, configs)
        result.configs = self._known[configs]


def _configs(node: Node, configs: Configs) -> list[CreatableTopicConfigs]:
    overrides = {name: value for name, value in configs if value is not None}
    return [
        CreatableTopicConfigs(
            name=entry.setting.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.setting.sensitive,
        )
        for entry in describe_topic(node.config, overrides)
    ]
