"""DeleteTopics, versions 1 to 6: by name, and from version 6 on by id as well (KIP-516)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.decisions import carry_out, error_fields
from ottla.broker.node import Node
from ottla.controller.topics import DeletedTopic, UnwantedTopic, delete_topics
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

FIRST_WITH_DELETION_DISABLED = 3


def handle(node: Node, request: DeleteTopicsRequest, context: RequestContext) -> None:
    """Answer for each topic that it is gone, or why not."""
    carry_out(
        node,
        context,
        delete_topics(node.controller.latest_image, node.config, _topics(request)),
        lambda results: DeleteTopicsResponse(
            responses=[_result(deleted, error, context.version) for deleted, error in results]
        ),
    )


def _result(deleted: DeletedTopic, error: ApiError | None, version: int) -> DeletableTopicResult:
    code, message = error_fields(error)
    if code == ErrorCode.TOPIC_DELETION_DISABLED and version < FIRST_WITH_DELETION_DISABLED:
        code = ErrorCode.INVALID_REQUEST
    return DeletableTopicResult(
        name=deleted.name, topic_id=deleted.topic_id, error_code=code, error_message=message
    )


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
