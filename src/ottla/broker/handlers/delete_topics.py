"""DeleteTopics, versions 1 to 6: by name, and from version 6 on by id as well (KIP-516)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.decisions import carry_out, error_fields
from ottla.broker.node import Node
from ottla.controller.topics import UnwantedTopic, delete_topics
from ottla.model.errors import ErrorCode
from ottla.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

FIRST_WITH_DELETION_DISABLED = 3


def handle(
    node: Node, request: DeleteTopicsRequest, context: RequestContext
) -> DeleteTopicsResponse:
    """Each topic, gone or why not."""
    topics = [UnwantedTopic(name) for name in request.topic_names]
    topics += [UnwantedTopic(topic.name, topic.topic_id) for topic in request.topics]
    decision = delete_topics(node.image, node.config, topics)
    failure = carry_out(node, decision.records, validate_only=False)
    responses = []
    for deleted in decision.results:
        code, message = error_fields(deleted.error or failure)
        if (
            code == ErrorCode.TOPIC_DELETION_DISABLED
            and context.version < FIRST_WITH_DELETION_DISABLED
        ):
            code = ErrorCode.INVALID_REQUEST
        responses.append(
            DeletableTopicResult(
                name=deleted.name,
                topic_id=deleted.topic_id,
                error_code=code,
                error_message=message,
            )
        )
    return DeleteTopicsResponse(responses=responses)
