"""DeleteGroups, versions 0 to 2: delete empty groups and their offsets (KIP-229)."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.broker.sliced_reply import SlicedReply
from ottla.coordinator.groups.group_listing import delete_group
from ottla.coordinator.runtime.combined_reply import combined_reply
from ottla.coordinator.runtime.reply import Reply
from ottla.model.errors import ApiError
from ottla.model.steps import Steps
from ottla.wire.lazy_list import LazyList
from ottla.wire.message import Message
from ottla.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle(
    node: Node, request: DeleteGroupsRequest, context: RequestContext
) -> Steps[DeleteGroupsResponse | None]:
    """Return each group's result, once it is deleted."""
    group_ids = list(dict.fromkeys(request.groups_names))
    if not group_ids:
        return DeleteGroupsResponse()

    def respond(parts: Sequence[Message]) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(
            results=[part for part in parts if isinstance(part, DeletableGroupResult)]
        )

    combined = combined_reply(SlicedReply(context), len(group_ids), respond)
    for position, group_id in enumerate(group_ids):
        yield from _delete(node, group_id, combined.part(position))
        yield
    return None


def refuse(
    request: DeleteGroupsRequest, error: ApiError, context: RequestContext
) -> DeleteGroupsResponse:
    """Return the error for every group."""
    return DeleteGroupsResponse(
        results=LazyList(
            lambda group_id: DeletableGroupResult(group_id=group_id, error_code=error.code),
            request.groups_names,
        )
    )


def _delete(node: Node, group_id: str, reply: Reply) -> Steps[None]:
    try:
        runtime = node.groups.runtime_of(group_id)
        yield from delete_group(runtime, group_id)
    except ApiError as error:
        reply.send(DeletableGroupResult(group_id=group_id, error_code=error.code))
        return
    runtime.answer(reply, DeletableGroupResult(group_id=group_id))
