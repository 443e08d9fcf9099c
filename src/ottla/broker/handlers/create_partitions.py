"""CreatePartitions, versions 0 to 3: more partitions for topics (KIP-195)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.controller_decisions import carry_out, error_fields
from ottla.broker.node import Node
from ottla.controller.decision import Decision
from ottla.controller.partitions import GrownTopic, MorePartitions, create_partitions
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ApiError
from ottla.model.steps import Steps, in_steps
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def handle(node: Node, request: CreatePartitionsRequest, context: RequestContext) -> None:
    """Answer for each topic that it has grown, or why not."""

    def decide(image: MetadataImage) -> Steps[Decision[GrownTopic]]:
        topics = yield from in_steps(_more, request.topics)
        return (yield from create_partitions(image, node.ports.random, topics))

    carry_out(
        node,
        context,
        decide,
        lambda results: CreatePartitionsResponse(results=LazyList(_result, results)),
        validate_only=request.validate_only,
    )


def _result(result: tuple[GrownTopic, ApiError | None]) -> CreatePartitionsTopicResult:
    grown, error = result
    code, message = error_fields(error)
    return CreatePartitionsTopicResult(name=grown.name, error_code=code, error_message=message)


def refuse(
    request: CreatePartitionsRequest, error: ApiError, context: RequestContext
) -> CreatePartitionsResponse:
    """Return the error for every topic."""
    return CreatePartitionsResponse(
        results=LazyList(
            lambda topic: CreatePartitionsTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message
            ),
            request.topics,
        )
    )


def _more(topic: CreatePartitionsTopic) -> MorePartitions:
    assignments = topic.assignments
    return MorePartitions(
        topic.name,
        topic.count,
        None if assignments is None else [each.broker_ids for each in assignments],
    )
