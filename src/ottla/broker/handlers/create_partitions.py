"""CreatePartitions, versions 0 to 3: more partitions for topics (KIP-195)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.decisions import carry_out, error_fields
from ottla.broker.node import Node
from ottla.controller.partitions import GrownTopic, MorePartitions, create_partitions
from ottla.model.errors import ApiError
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def handle(node: Node, request: CreatePartitionsRequest, context: RequestContext) -> None:
    """Answer for each topic that it has grown, or why not."""
    topics = [_more(topic) for topic in request.topics]
    carry_out(
        node,
        context,
        create_partitions(node.controller.latest_image, node.ports.random, topics),
        lambda results: CreatePartitionsResponse(results=[_result(*each) for each in results]),
        validate_only=request.validate_only,
    )


def _result(grown: GrownTopic, error: ApiError | None) -> CreatePartitionsTopicResult:
    code, message = error_fields(error)
    return CreatePartitionsTopicResult(name=grown.name, error_code=code, error_message=message)


def refuse(
    request: CreatePartitionsRequest, error: ApiError, context: RequestContext
) -> CreatePartitionsResponse:
    """Return the error for every topic."""
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message
            )
            for topic in request.topics
        ]
    )


def _more(topic: CreatePartitionsTopic) -> MorePartitions:
    assignments = topic.assignments
    return MorePartitions(
        topic.name,
        topic.count,
        None if assignments is None else [each.broker_ids for each in assignments],
    )
