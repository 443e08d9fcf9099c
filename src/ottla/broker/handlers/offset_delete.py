"""OffsetDelete, version 0: delete offsets of a group (KIP-496)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.broker.sliced_reply import SlicedReply
from ottla.coordinator.groups.offset_delete import delete_offsets
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps
from ottla.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse


def handle(
    node: Node, request: OffsetDeleteRequest, context: RequestContext
) -> Steps[OffsetDeleteResponse | None]:
    """Return each partition's result, once the offsets are deleted."""
    if not request.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    runtime = node.groups.runtime_of(request.group_id)
    response = yield from delete_offsets(runtime, request)
    if runtime.is_active and runtime.is_settled:
        return response
    runtime.answer(SlicedReply(context), response)
    return None
