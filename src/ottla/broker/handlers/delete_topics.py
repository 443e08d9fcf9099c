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
    topics = [UnwantedTopic(name) for name in request.topic_names]
    topics += [UnwantedTopic(topic.name, topic.topic_id) for topic in request.topics]
    carry_out(
        node,
        context,
        delete_topics(node.controller.latest_image, node.config, topics),
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
