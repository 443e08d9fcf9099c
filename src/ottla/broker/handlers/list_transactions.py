"""ListTransactions, versions 0 to 2: the transactional ids that this broker coordinates.

With filters by state and producer id (KIP-664), duration (KIP-994) and name (KIP-1152).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.broker.sliced_reply import SlicedReply
from ottla.coordinator.groups.consumer.pattern import Pattern, PatternError
from ottla.coordinator.runtime.combined_reply import combined_reply
from ottla.coordinator.transactions.transaction_listing import (
    Filters,
    list_transactions,
    states_named,
)
from ottla.model.acl import AclOperation, AclResourceType
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps
from ottla.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

_MOST_COST: Final = 5_000_000
"""What one match may cost, in units of about 2 ns. Transactional ids may be very long."""


def handle(
    node: Node, request: ListTransactionsRequest, context: RequestContext
) -> Steps[ListTransactionsResponse | None]:
    """Return the ids that match the filters. States that do not exist match none."""
    states, unknown = states_named(request.state_filters)
    filters = Filters(
        states,
        set(request.producer_id_filters),
        request.duration_filter,
        *_matcher(request.transactional_id_pattern),
    )
    runtimes = list(node.transactions.host.active_runtimes())
    response = ListTransactionsResponse(unknown_state_filters=unknown)
    if unknown and not states:
        return response
    for runtime in runtimes:
        listed = yield from list_transactions(runtime.shard, filters)
        response.transaction_states += [each for each in listed if _is_allowed(each, context)]
    unsettled = [runtime for runtime in runtimes if not (runtime.is_active and runtime.is_settled)]
    if not unsettled:
        return response
    combined = combined_reply(SlicedReply(context), len(unsettled), lambda parts: parts[0])
    for position, runtime in enumerate(unsettled):
        runtime.answer(combined.part(position), response)
    return None


def _is_allowed(listed: TransactionState, context: RequestContext) -> bool:
    return context.allows(
        AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, listed.transactional_id
    )


def _matcher(
    text: str | None,
) -> tuple[Callable[[str], bool] | None, Callable[[str], int] | None]:
    """Return functions that match an id with a pattern, and say what that costs."""
    if not text:
        return None, None
    try:
        pattern = Pattern(text)
        matches = pattern.matcher()
    except PatternError as error:
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None

    def cost(transactional_id: str) -> int:
        units = pattern.cost(transactional_id)
        if units > _MOST_COST:
            raise ApiError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"it is too large for a transactional id of {len(transactional_id)} characters",
            )
        return units

    return matches, cost
