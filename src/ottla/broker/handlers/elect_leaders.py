"""ElectLeaders, versions 0 to 2: preferred and unclean elections (KIP-183, KIP-460)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ottla.broker.context import RequestContext
from ottla.broker.controller_decisions import carry_out, error_fields
from ottla.broker.node import Node
from ottla.controller.decision import Decision
from ottla.controller.elections import ELECTION_TYPES, ElectedLeader, elect_leaders
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.steps import ITEMS_A_STEP, Steps, in_steps
from ottla.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


def handle(node: Node, request: ElectLeadersRequest, context: RequestContext) -> None:
    """Answer for each partition that it has another leader, or why not."""
    election = ELECTION_TYPES.get(request.election_type)
    if election is None:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"There is no election type {request.election_type}"
        )

    def decide(image: MetadataImage) -> Steps[Decision[ElectedLeader]]:
        asked = yield from in_steps(lambda name: name, _asked(request))
        names = None if request.topic_partitions is None else asked
        return (yield from elect_leaders(image, node.config, election, names))

    carry_out(node, context, decide, _response)


def _asked(request: ElectLeadersRequest) -> Iterator[TopicPartition]:
    for topic in request.topic_partitions or ():
        for index in topic.partitions:
            yield TopicPartition(topic.topic, index)


def _response(
    results: Sequence[tuple[ElectedLeader, ApiError | None]],
) -> Steps[ElectLeadersResponse]:
    topics: dict[str, list[PartitionResult]] = {}
    for number, (elected, error) in enumerate(results, 1):
        if not number % ITEMS_A_STEP:
            yield
        code, message = error_fields(error)
        topics.setdefault(elected.partition.topic, []).append(
            PartitionResult(
                partition_id=elected.partition.partition, error_code=code, error_message=message
            )
        )
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=name, partition_result=partitions)
            for name, partitions in topics.items()
        ]
    )


def refuse(request: ElectLeadersRequest, error: ApiError, context: RequestContext) -> None:
    """Answer with the error, from version 1 on for the request, and for every partition."""

    def answer() -> Steps[None]:
        results = yield from in_steps(lambda name: (ElectedLeader(name), error), _asked(request))
        response = yield from _response(results)
        response.error_code = error.code
        yield from context.send_in_slices(response)

    context.run_in_slices(answer())
