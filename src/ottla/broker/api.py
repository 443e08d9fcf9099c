"""One API as the pipeline serves it: its versions, how to decode it, who handles it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.broker.context import RequestContext
from ottla.broker.handlers import Served
from ottla.broker.metrics.request_metrics import EVERY, ONE_IN_32, RequestMetrics
from ottla.model.errors import ApiError
from ottla.model.steps import Steps
from ottla.ports import Buffer
from ottla.wire.api_table import API_INFO, ApiKey
from ottla.wire.apis import request_class, response_class
from ottla.wire.codec import decoder
from ottla.wire.discard import ONE_FRAME_BYTES
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.broker.node import Node

Decode: TypeAlias = Callable[[int, bytearray, memoryview, int, int], Any]
"""(version, buffer, view, start, end of the body) -> the request as its handler takes it.

It raises DecodeError, IndexError or struct.error if the bytes are not a valid request.
"""

Handle: TypeAlias = Callable[..., Message | Steps[Message | None] | None]
"""(node, request, context) -> the response; None if it is sent later; or steps that return it."""

Refuse: TypeAlias = Callable[[Any, ApiError, Any], Message | None]
"""(request, error, context) -> the response to a request that fails as a whole.

Like a handler it may return None, and answer with the context instead.
"""

LARGE_BYTES = 16 * 1024
MEDIUM_BYTES = 512

_NEVER = 0x7FFF
_NEVER_LARGE = 2**31


class Api:
    """An API whose handler is imported. What it has counted is in `metrics`."""

    __slots__ = (
        "busy_step_bytes",
        "context_class",
        "decoders",
        "first_flexible",
        "first_flexible_response",
        "handle",
        "handle_large",
        "is_generated",
        "is_hot",
        "is_open",
        "key",
        "large_modules",
        "metrics",
        "most_items",
        "name",
        "node",
        "refuse",
        "request_class",
        "step_bytes",
    )

    def __init__(self, key: int, node: Node, served: Served, package: str) -> None:
        info = API_INFO[key]
        module = import_module(f"{package}.{ApiKey(key).name.lower()}")
        self.key = int(key)
        self.node = node
        self.name = info.name
        self.first_flexible = _NEVER if info.first_flexible is None else info.first_flexible
        self.is_hot = served.is_hot
        self.is_open = key == ApiKey.API_VERSIONS
        """Whether everybody may use it, whatever the authorizer says."""
        self.first_flexible_response = _NEVER if key == ApiKey.API_VERSIONS else self.first_flexible
        self.most_items = served.most_items
        self.large_modules = served.large_modules
        is_sampled = served.is_hot or served.is_sampled
        self.metrics = RequestMetrics(ONE_IN_32 if is_sampled else EVERY)
        self.handle: Handle = module.handle
        if served.is_forwarded and not node.config.is_alone:
            from ottla.broker.forwarding import forwarded

            self.handle = forwarded(module.handle)
        self.handle_large: Handle = getattr(module, "handle_large", self.handle)
        """Handles the message of the schema, to which large requests are decoded."""
        decoder_of = getattr(module, "decoder_of", None)
        self.request_class: type[Message] = getattr(module, "REQUEST", None) or request_class(key)
        in_slices = decoder_of is None or getattr(module, "TAKES_LARGE", False)
        most_bytes = ONE_FRAME_BYTES if hasattr(module, "handle_large") else _NEVER_LARGE
        self.step_bytes = LARGE_BYTES if in_slices else most_bytes
        """Requests with more bytes are decoded in slices. If the API has its own decoder, these are
        only those that are very large."""
        self.busy_step_bytes = MEDIUM_BYTES if in_slices else most_bytes
        """The same while others are being handled in slices: not all are decoded side by side."""
        self.is_generated = decoder_of is None
        """Whether its decoders are made from the schema."""
        decoder_of = decoder_of or (lambda version: _generated(self.request_class))
        versions = range(served.oldest, served.newest + 1)
        self.decoders: dict[int, Decode] = {version: decoder_of(version) for version in versions}
        """The decoder of each version that is served."""
        self.context_class: type[RequestContext] = getattr(module, "Context", RequestContext)
        self.refuse: Refuse = getattr(module, "refuse", _refuse)

    def make_decoder(self, version: int) -> None:
        """Make the decoder of a version now, which may take a millisecond or two.

        Otherwise the first request of the version does.
        """
        if self.is_generated and version in self.decoders:
            decoder(self.request_class, version)


def _generated(request: type[Message]) -> Decode:
    """Return a decoder made from the schema of a request, when it is first used."""
    message: Callable[[Buffer, int, int], tuple[Message, int]] | None = None

    def decode(version: int, buffer: bytearray, view: memoryview, start: int, end: int) -> Message:
        nonlocal message
        if message is None:
            message = decoder(request, version)
        return message(view[start:end].toreadonly(), 0, end - start)[0]

    return decode


def _refuse(request: Any, error: ApiError, context: RequestContext) -> Message:
    """Return a response that has room for an error of the request as a whole."""
    response = response_class(context.api.key)()
    if "error_code" not in response.__slots__:
        raise AssertionError(f"{type(response).__name__} has no room for {error}") from error
    response.error_code = error.code  # type: ignore[attr-defined]
    if "error_message" in response.__slots__:
        response.error_message = error.message  # type: ignore[attr-defined]
    return response
