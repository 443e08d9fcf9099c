"""DeleteTopics, versions 1 to 6: by name, and from version 6 on by id as well (KIP-516)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.controller_decisions import carry_out, error_fields
from ottla.broker.node import Node
from ottla.controller.decision import Decision
from ottla.controller.topics import DeletedTopic, UnwantedTopic, delete_topics
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps, in_steps
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

FIRST_WITH_DELETION_DISABLED = 3


def handle(node: Node, request: DeleteTopicsRequest, context: RequestContext) -> None:
    """Answer for each topic that it is gone, or why not."""

    def decide(image: MetadataImage) -> Steps[Decision[DeletedTopic]]:
        topics = yield from in_steps(_topic, _asked(request))
        return (yield from delete_topics(image, node.config, topics))

    carry_out(
        node,
        context,
        decide,
        lambda results: DeleteTopicsResponse(
            responses=LazyList(lambda each: _result(each[0], each[1], context.version), results)
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
        responses=LazyList(lambda asked: _refused(_topic(asked), error), _asked(request))
    )


def _refused(topic: UnwantedTopic, error: ApiError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=error.code,
        error_message=error.message,
    )


def _asked(request: DeleteTopicsRequest) -> list[str | DeleteTopicState]:
    """Return the topics asked for, by name or by id."""
    return [*request.topic_names, *request.topics]


def _topic(asked: str | DeleteTopicState) -> UnwantedTopic:
    if isinstance(asked, str):
        return UnwantedTopic(asked)
    return UnwantedTopic(asked.name, asked.topic_id)
