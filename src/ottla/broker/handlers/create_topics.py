"""CreateTopics, versions 2 to 7 (KIP-464 defaults, KIP-525 settings, KIP-516 ids)."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.context import RequestContext
from ottla.broker.decisions import carry_out, error_fields
from ottla.broker.node import Node
from ottla.config.describe import describe_topic
from ottla.controller.topics import CreatedTopic, NewTopic, create_topics
from ottla.model.errors import ApiError
from ottla.model.ids import ZERO_UUID
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

FIRST_WITH_CONFIGS = 5


def handle(node: Node, request: CreateTopicsRequest, context: RequestContext) -> None:
    """Answer each topic's id and settings, or why it was not created."""
    topics = [_new_topic(topic) for topic in request.topics]
    configs = {topic.name: topic.configs for topic in topics}

    def result(created: CreatedTopic, error: ApiError | None) -> CreatableTopicResult:
        if error is not None:
            return _failure(created.name, error)
        success = _success(created, request.validate_only)
        if context.version >= FIRST_WITH_CONFIGS:
            success.configs = _configs(node, configs[created.name])
        return success

    carry_out(
        node,
        context,
        create_topics(node.controller.latest_image, node.config, node.ports.random, topics),
        lambda results: CreateTopicsResponse(topics=[result(*each) for each in results]),
        validate_only=request.validate_only,
    )


def refuse(
    request: CreateTopicsRequest, error: ApiError, context: RequestContext
) -> CreateTopicsResponse:
    """Return the error for every topic."""
    return CreateTopicsResponse(topics=[_failure(topic.name, error) for topic in request.topics])


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(each.partition_index, each.broker_ids) for each in topic.assignments],
        [(each.name, each.value) for each in topic.configs],
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


def _configs(node: Node, configs: Sequence[tuple[str, str | None]]) -> list[CreatableTopicConfigs]:
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
