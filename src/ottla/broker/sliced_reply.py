"""A reply to which others send a response, and which encodes it in slices."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.wire.message import Message


class SlicedReply:
    """Parks a request until its response is sent."""

    __slots__ = ("_context",)

    def __init__(self, context: RequestContext) -> None:
        self._context = context.defer()

    def send(self, response: Message) -> None:
        """Answer with a message that may be large."""
        self._context.run_in_slices(self._context.send_in_slices(response))
