"""OffsetCommit, versions 2 to 10: store how far a group has come."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.coordinator.committing import commit_offsets, refuse_commit
from ottla.model.errors import ApiError
from ottla.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse


def handle(
    node: Node, request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | None:
    """Each partition's result, once what is taken is committed."""
    try:
        runtime = node.groups.runtime_of(request.group_id)
    except ApiError as error:
        return refuse_commit(request, error.code)
    response, records = commit_offsets(runtime.shard, request, context.version)
    if not records:
        return response
    runtime.shard.answer(context.defer(), response)
    runtime.finish(records)
    return None
