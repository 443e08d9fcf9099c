"""AlterPartitionReassignments, versions 0 and 1: move replicas to other brokers (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ottla.broker.context import RequestContext
from ottla.broker.controller_decisions import carry_out, error_fields
from ottla.broker.node import Node
from ottla.controller.decision import Decision
from ottla.controller.reassignments import Reassigned, WantedReplicas, alter_reassignments
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ApiError
from ottla.model.ids import TopicPartition
from ottla.model.steps import ITEMS_A_STEP, Steps, in_steps
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


def handle(
    node: Node, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> None:
    """Answer for each partition that its reassignment has begun or was cancelled, or why not."""
    allowed = request.allow_replication_factor_change or context.version < 1

    def decide(image: MetadataImage) -> Steps[Decision[Reassigned]]:
        wanted = yield from in_steps(lambda each: each, _wanted(request))
        return (
            yield from alter_reassignments(
                image, node.config, wanted, allow_replication_factor_change=allowed
            )
        )

    def respond(
        results: Sequence[tuple[Reassigned, ApiError | None]],
    ) -> Steps[AlterPartitionReassignmentsResponse]:
        response = yield from _response(results)
        response.allow_replication_factor_change = allowed
        return response

    carry_out(node, context, decide, respond)


def _wanted(request: AlterPartitionReassignmentsRequest) -> Iterator[WantedReplicas]:
    for topic in request.topics:
        for each in topic.partitions:
            yield WantedReplicas(TopicPartition(topic.name, each.partition_index), each.replicas)


def _response(
    results: Sequence[tuple[Reassigned, ApiError | None]],
) -> Steps[AlterPartitionReassignmentsResponse]:
    topics: dict[str, list[ReassignablePartitionResponse]] = {}
    for number, (reassigned, error) in enumerate(results, 1):
        if not number % ITEMS_A_STEP:
            yield
        code, message = error_fields(error)
        topics.setdefault(reassigned.partition.topic, []).append(
            ReassignablePartitionResponse(
                partition_index=reassigned.partition.partition,
                error_code=code,
                error_message=message,
            )
        )
    return AlterPartitionReassignmentsResponse(
        error_message=None,
        responses=[
            ReassignableTopicResponse(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )


def refuse(
    request: AlterPartitionReassignmentsRequest, error: ApiError, context: RequestContext
) -> None:
    """Answer with the error for the request and for every partition."""

    def answer() -> Steps[None]:
        results = yield from in_steps(
            lambda each: (Reassigned(each.partition), error), _wanted(request)
        )
        response = yield from _response(results)
        response.error_code, response.error_message = error.code, error.message
        yield from context.send_in_slices(response)

    context.run_in_slices(answer())
