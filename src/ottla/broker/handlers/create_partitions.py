"""CreatePartitions, versions 0 to 3: more partitions for topics (KIP-195)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.decisions import carry_out, error_fields
from ottla.broker.node import Node
from ottla.controller.partitions import MorePartitions, create_partitions
from ottla.model.errors import ApiError
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def handle(
    node: Node, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    """Each topic, grown or why not."""
    topics = [_more(topic) for topic in request.topics]
    decision = create_partitions(node.image, node.ports.random, topics)
    failure = carry_out(node, decision.records, validate_only=request.validate_only)
    results = []
    for grown in decision.results:
        code, message = error_fields(grown.error or failure)
        results.append(
            CreatePartitionsTopicResult(name=grown.name, error_code=code, error_message=message)
        )
    return CreatePartitionsResponse(results=results)


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
