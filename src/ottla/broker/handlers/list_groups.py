"""ListGroups, versions 0 to 5: all groups of this broker, by state and type (KIP-518, KIP-848)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.broker.sliced_reply import SlicedReply
from ottla.coordinator.groups.group_listing import list_groups
from ottla.coordinator.runtime.combined_reply import combined_reply
from ottla.model.steps import Steps, in_steps
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


def handle(
    node: Node, request: ListGroupsRequest, context: RequestContext
) -> Steps[ListGroupsResponse | None]:
    """Return the groups that match the filters."""
    states = set((yield from in_steps(_folded, request.states_filter)))
    types = set((yield from in_steps(_folded, request.types_filter)))
    runtimes = list(node.groups.host.active_runtimes())
    response = ListGroupsResponse()
    for runtime in runtimes:
        response.groups += yield from list_groups(runtime.shard, states, types)
    unsettled = [runtime for runtime in runtimes if not (runtime.is_active and runtime.is_settled)]
    if not unsettled:
        return response
    combined = combined_reply(SlicedReply(context), len(unsettled), lambda parts: parts[0])
    for position, runtime in enumerate(unsettled):
        runtime.answer(combined.part(position), response)
    return None


def _folded(name: str) -> str:
    return name.strip().lower()
