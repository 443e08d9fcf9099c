"""DeleteTopics, versions 1 to 6: by name, and from version 6 on by id as well (KIP-516)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.decisions import carry_out, error_fields
from ottla.broker.node import Node
from ottla.controller.topics import UnwantedTopic, delete_topics
from ottla.model.errors import ApiError, ErrorCode
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
    decision = delete_topics(node.image, node.config, _topics(request))
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


def refuse(
    request: DeleteTopicsRequest, error: ApiError, context: RequestContext
) -> DeleteTopicsResponse:
    """Return the error for every topic."""
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=topic.name,
                topic_id=topic.topic_id,
                error_code=error.code,
                error_message=error.message,
            )
            for topic in _topics(request)
        ]
    )


def _topics(request: DeleteTopicsRequest) -> list[UnwantedTopic]:
    """Return the topics asked for, by name or by id."""
    topics = [UnwantedTopic(name) for name in request.topic_names]
    return topics + [UnwantedTopic(topic.name, topic.topic_id) for topic in request.topics]
