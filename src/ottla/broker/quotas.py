"""Quotas: how long a sender is held back, and holding it back (KIP-13, KIP-219).

A throttled request is answered as usual, and its response says for how long its connection is not
served. That is enforced here, since clients may not keep to it. The time runs from the request,
also for a request that is answered later.

Quotas by user or client id (KIP-124) would be a file beside this one that implements `Quotas`.
"""

from __future__ import annotations

from typing import Protocol

from ottla.broker.connection import PendingReply
from ottla.broker.context import RequestContext


class Quotas(Protocol):
    """Counts what principals and clients use."""

    def throttle_ms(self, context: RequestContext) -> int:
        """Count a request; return for how long its connection is to be held back, or 0.

        Raise ApiError (THROTTLING_QUOTA_EXCEEDED) to refuse the request.
        """
        ...


class HeldBack:
    """Stands in `Connection.parked`, so that no request is taken until its time is over.

    If a request was parked there before, the connection waits for its reply as well.
    """

    __slots__ = ("_context", "_parked")

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        parked = context.connection.parked
        assert not isinstance(parked, HeldBack), "a request of a throttled connection was handled"
        self._parked: PendingReply | None = parked

    def release(self) -> None:
        """Let the connection go on, unless it still waits for a reply."""
        connection = self._context.connection
        if connection.closed:
            return
        parked = self._parked
        is_owed = parked in connection.pending and parked is not None and parked.parts is None
        connection.parked = parked if is_owed else None
        self._context.node.ready.append(connection)


def hold_back(context: RequestContext) -> None:
    """Take no further request from the connection for as long as its throttle time."""
    node, connection = context.node, context.connection
    if not connection.closed:
        held = connection.parked = HeldBack(context)
        node.timers.at(node.monotonic_ms + context.throttle_ms, held.release)
