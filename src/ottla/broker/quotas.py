"""Quotas: how long a sender is held back, and holding it back (KIP-13, KIP-219).

A throttled request is answered at once, and says for how long its connection is not served: that
is enforced here, since clients may not keep to it.
"""

from __future__ import annotations

from typing import Protocol

from ottla.broker.connection import Part
from ottla.broker.context import RequestContext


class Quotas(Protocol):
    """Counts what principals and clients use."""

    def throttle_ms(self, context: RequestContext) -> int:
        """Count a request; return for how long its connection is to be held back, or 0."""
        ...


class HeldBack:
    """Keeps a connection from sending requests until its time is over."""

    __slots__ = ("_context", "parts")

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self.parts: list[Part] | None = None

    def abandon(self) -> None:
        """Stop waiting: the connection is gone."""

    def release(self) -> None:
        """Let the connection go on."""
        connection = self._context.connection
        self.parts = []
        if connection.parked is self:
            connection.parked = None
        connection.release_complete()
        self._context.node.ready.append(connection)


def hold_back(context: RequestContext) -> None:
    """Take no further request from the connection for as long as its throttle time."""
    node, connection = context.node, context.connection
    if connection.parked is not None or connection.closed:
        return  # it waits for an answer already: that holds it back as well
    held = HeldBack(context)
    connection.parked = held
    connection.pending.append(held)
    node.timers.at(node.monotonic_ms + context.throttle_ms, held.release)
