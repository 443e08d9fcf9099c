"""FindCoordinator, versions 0 to 6: the broker of a group. Batched from version 4 (KIP-699)."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.auto_topic_creation import auto_create
from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.coordinator.runtime.partitioner import partition_of
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import OFFSETS_TOPIC
from ottla.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

FIRST_BATCHED = 4
GROUP = 0
TRANSACTION = 1
NO_NODE = (-1, "", -1)


def handle(
    node: Node, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse | None:
    """Return the coordinator of each key; create __consumer_offsets with the first group."""
    if request.key_type != GROUP or OFFSETS_TOPIC in node.image.topics:
        return _respond(node, request, context)
    reply = context.defer()

    def created(errors: Mapping[str, ApiError]) -> None:
        reply.send(_respond(node, request, context, errors.get(OFFSETS_TOPIC)))

    auto_create(node, [OFFSETS_TOPIC], created)
    return None


def _respond(
    node: Node,
    request: FindCoordinatorRequest,
    context: RequestContext,
    refusal: ApiError | None = None,
) -> FindCoordinatorResponse:
    """Return the coordinator of each key."""
    listener = context.connection.listener
    keys = _keys(request, context)
    found = [_find(node, request.key_type, key, listener, refusal) for key in keys]
    return _response(found, context)


def refuse(
    request: FindCoordinatorRequest, error: ApiError, context: RequestContext
) -> FindCoordinatorResponse:
    """Return the error for every key."""
    return _response([_refused(key, error) for key in _keys(request, context)], context)


def _keys(request: FindCoordinatorRequest, context: RequestContext) -> list[str]:
    return request.coordinator_keys if context.version >= FIRST_BATCHED else [request.key]


def _response(coordinators: list[Coordinator], context: RequestContext) -> FindCoordinatorResponse:
    if context.version >= FIRST_BATCHED:
        return FindCoordinatorResponse(coordinators=coordinators)
    (found,) = coordinators
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(
    node: Node, key_type: int, key: str, listener: str, refusal: ApiError | None
) -> Coordinator:
    try:
        node_id, host, port = _address(node, _leader(node, key_type, key, refusal), listener)
    except ApiError as error:
        return _refused(key, error)
    return Coordinator(key=key, node_id=node_id, host=host, port=port, error_message=None)


def _refused(key: str, error: ApiError) -> Coordinator:
    node_id, host, port = NO_NODE
    return Coordinator(
        key=key,
        node_id=node_id,
        host=host,
        port=port,
        error_code=error.code,
        error_message=error.message,
    )


def _leader(node: Node, key_type: int, key: str, refusal: ApiError | None) -> int:
    if key_type == TRANSACTION:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "Transactions are not supported by this broker yet"
        )
    if key_type != GROUP:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"There is no coordinator of type {key_type}")
    topic = node.image.topics.get(OFFSETS_TOPIC)
    if topic is None:
        message = None if refusal is None else refusal.message
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
    return topic.partitions[partition_of(key, node.groups.host.num_partitions)].leader


def _address(node: Node, leader: int, listener: str) -> tuple[int, str, int]:
    for node_id, host, port, _ in node.brokers_for(listener):
        if node_id == leader:
            return node_id, host, port
    raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Broker {leader} is not available")
