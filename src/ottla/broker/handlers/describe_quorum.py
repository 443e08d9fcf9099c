"""DescribeQuorum, versions 0 to 2: the voters and observers, and how far each is (KIP-836)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.controller.quorum.replies_to_wire import description
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import METADATA_TOPIC
from ottla.model.steps import ITEMS_A_STEP, Steps
from ottla.raft.description import QuorumDescription
from ottla.raft.voters import Endpoint
from ottla.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ResponsePartitionData,
    ResponseTopicData,
)


def handle(
    node: Node, request: DescribeQuorumRequest, context: RequestContext
) -> DescribeQuorumResponse | Steps[DescribeQuorumResponse]:
    """Answer if this node leads the quorum, about the partition of the metadata."""
    if list(islice(_asked(request), 2)) != [(METADATA_TOPIC, 0)]:
        return _unknown(request)
    found = node.controller.describe_quorum(node.monotonic_ms)
    if found is None:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another controller leads the quorum")
    endpoints = _registered(node, found) | found.endpoints
    return description(found._replace(endpoints=endpoints), node.wall_ms - node.monotonic_ms)


def _registered(node: Node, found: QuorumDescription) -> dict[int, tuple[Endpoint, ...]]:
    """Return where the observers listen that are controllers: each could become a voter."""
    controllers = node.image.controllers
    return {
        key.id: tuple(
            Endpoint(each.listener_name, each.host, each.port)
            for each in controllers[key.id].endpoints
        )
        for key, *_ in found.observers
        if key.id in controllers
    }


def _asked(request: DescribeQuorumRequest) -> Iterator[tuple[str, int]]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield topic.topic_name, partition.partition_index


def _unknown(request: DescribeQuorumRequest) -> Steps[DescribeQuorumResponse]:
    """Return UNKNOWN_TOPIC_OR_PARTITION for everything that has no quorum."""
    topics: dict[str, list[ResponsePartitionData]] = {}
    for number, (name, index) in enumerate(_asked(request), 1):
        if not number % ITEMS_A_STEP:
            yield
        topics.setdefault(name, []).append(
            ResponsePartitionData(
                partition_index=index,
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                error_message=f"only {METADATA_TOPIC}-0 has a quorum",
            )
        )
    return DescribeQuorumResponse(
        topics=[
            ResponseTopicData(topic_name=name, partitions=partitions)
            for name, partitions in topics.items()
        ]
    )
