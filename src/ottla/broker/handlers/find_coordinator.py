"""FindCoordinator, versions 0 to 6: the broker of a group or of a transactional id.

Batched from version 4 (KIP-699). The first one that looks for a coordinator creates its topic.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.auto_topic_creation import auto_create
from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.broker.step_imports import GROUPS, TRANSACTIONS, import_in_steps
from ottla.coordinator.runtime.partitioner import partition_of
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.model.steps import Steps, in_steps
from ottla.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

FIRST_BATCHED = 4
GROUP = 0
TRANSACTION = 1
NO_NODE = (-1, "", -1)
_TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}
_MODULES = {GROUP: GROUPS, TRANSACTION: TRANSACTIONS}


def handle(
    node: Node, request: FindCoordinatorRequest, context: RequestContext
) -> Steps[FindCoordinatorResponse] | None:
    """Return the coordinator of each key; create the internal topic for the first one."""
    topic = _TOPICS.get(request.key_type)
    if topic is None or topic in node.image.topics:
        return _respond(node, request, context)
    context.defer()

    def answer(refusal: ApiError | None) -> Steps[None]:
        response = yield from _respond(node, request, context, refusal)
        yield from context.send_in_slices(response)

    def created(errors: Mapping[str, ApiError]) -> None:
        context.run_in_slices(answer(errors.get(topic)))

    auto_create(node, [topic], created)
    return None


def _respond(
    node: Node,
    request: FindCoordinatorRequest,
    context: RequestContext,
    refusal: ApiError | None = None,
) -> Steps[FindCoordinatorResponse]:
    """Return the coordinator of each key. A key that is named several times has one answer."""
    listener = context.connection.listener
    if request.key_type in _MODULES:
        yield from import_in_steps(_MODULES[request.key_type])
    keys = dict.fromkeys(_keys(request, context))
    found = yield from in_steps(
        lambda key: _find(node, request.key_type, key, listener, refusal), keys
    )
    return _response(found, context)


def refuse(
    request: FindCoordinatorRequest, error: ApiError, context: RequestContext
) -> FindCoordinatorResponse:
    """Return the error for every key."""
    return _response([_refused(key, error) for key in _keys(request, context)], context)


def _keys(request: FindCoordinatorRequest, context: RequestContext) -> list[str]:
    if context.version >= FIRST_BATCHED:
        return request.coordinator_keys
    return [request.key]


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
    name = _TOPICS.get(key_type)
    if name is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"There is no coordinator of type {key_type}")
    topic = node.image.topics.get(name)
    if topic is None:
        message = None if refusal is None else refusal.message
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
    host = node.groups.host if key_type == GROUP else node.transactions.host
    return topic.partitions[partition_of(key, host.num_partitions)].leader


def _address(node: Node, leader: int, listener: str) -> tuple[int, str, int]:
    for node_id, host, port, _ in node.brokers_for(listener):
        if node_id == leader:
            return node_id, host, port
    raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Broker {leader} is not available")
