"""Requests that only the active controller decides: other brokers pass them on to it.

A client may ask any broker. The answer of the controller goes back to the client as it is. Only if
it says that another controller is active (NOT_CONTROLLER), the request is sent again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.broker.context import RequestContext
from ottla.broker.controller_channel import RETRY_MS
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps
from ottla.wire.apis import response_class
from ottla.wire.codec import step_decoder, step_encoder
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.broker.node import Node

FORWARD_TIMEOUT_MS = 30_000
_ANY_NUMBER = 2**31
"""The response of the controller may have more items than the request."""
Handle = Callable[..., Message | Steps[Message | None] | None]


def forwarded(handle: Handle) -> Handle:
    """Return a handler that decides here if this controller is active, else asks the active one."""
    return partial(_handle_or_forward, handle)


def _handle_or_forward(
    handle: Handle, node: Node, request: Any, context: RequestContext
) -> Message | Steps[Message | None] | None:
    if node.controller.is_active:
        return handle(node, request, context)
    if context.connection.listener in node.controller_listeners:
        raise ApiError(ErrorCode.NOT_CONTROLLER, "this is not the active controller")
    return _forward(node, request, context)


def _forward(node: Node, request: Any, context: RequestContext) -> Steps[None]:
    """Send the request to the active controller. Large ones are encoded and decoded in slices."""
    body = yield from step_encoder(type(request), context.version)(request)
    reply = context.defer()
    key, version = context.api.key, context.version
    decode = step_decoder(response_class(key), version, _ANY_NUMBER)
    deadline_ms = node.monotonic_ms + FORWARD_TIMEOUT_MS

    def pass_on() -> None:
        node.channel.pass_on(key, version, body, answered, deadline_ms - node.monotonic_ms)

    def answered(result: bytes | TimeoutError) -> None:
        if isinstance(result, bytes):
            reply.run_in_slices(answer(result))
            return
        error = ApiError(
            ErrorCode.REQUEST_TIMED_OUT, "the active controller did not answer in time"
        )
        response = reply.api.refuse(request, error, reply)
        if response is not None:
            reply.run_in_slices(reply.send_in_slices(response))

    def answer(result: bytes) -> Steps[None]:
        message = yield from decode(result, 0, len(result))
        if (yield from has_error(message, ErrorCode.NOT_CONTROLLER)):
            node.timers.at(node.clock.monotonic_ms() + RETRY_MS, pass_on)
        else:
            reply.send_body(result)

    pass_on()


def has_error(message: Message, code: ErrorCode) -> Steps[bool]:
    """Return True if a response has this error, for the request or for one of its items."""
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.name == "error_code" and value == code:
            return True
        for each in value if isinstance(value, list) else ():
            if not isinstance(each, Message):
                break
            if (yield from has_error(each, code)):
                return True
            yield
    return False
