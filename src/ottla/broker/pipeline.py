"""The way of every request: header, decode, principal, quota, authorisation, handler, reply.

    header          API, version and client; an unknown API or version ends here
    decode          a codec written by hand, or one made from the schema
    principal       who the connection belongs to (`Connection.principal`)
    quota           how long the sender is to be held back (`Quotas`), if there are any
    authorisation   whether the principal may use the API (`Authorizer`), if there is one
    handler         `handlers/<api>.py`
    reply           encoded by `RequestContext`, in the order of the requests. A handler that may
                    take long is a generator: it and the encoding of its response are done in slices
    throttle        the connection is held back for as long as the quota says
    metrics         counts and times of each API (`RequestMetrics`)

Handlers and message classes are imported with the first request that needs them, so that a broker
starts with next to nothing. If they are many (`Served.modules`), this is done in slices.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct, error
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ottla.broker.api import Api
from ottla.broker.codecs.large_request import LargeRequest
from ottla.broker.connection import Connection, Part
from ottla.broker.context import RequestContext
from ottla.broker.handlers import SERVED, Served
from ottla.broker.step_imports import import_in_steps
from ottla.model.errors import ApiError
from ottla.model.steps import Steps
from ottla.wire.api_table import ApiKey
from ottla.wire.codec import step_decoder
from ottla.wire.discard import ONE_FRAME_BYTES, shrink
from ottla.wire.message import Message
from ottla.wire.primitives import DecodeError, skip_tags

if TYPE_CHECKING:
    from ottla.broker.authorizer import Authorizer
    from ottla.broker.node import Node
    from ottla.broker.quotas import Quotas

MOST_LARGE_BYTES = 4 * 1024 * 1024
"""The bytes of large requests that are handled side by side. A larger one is handled alone."""

FEW_WAITING = 8
"""With more work in slices, requests that are not small are decoded when it is their turn."""

_unpack_header: Final = Struct(">hhih").unpack_from
"""Returns the API key, the version, the correlation id and the length of the client id."""
_PREFIX: Final = Struct(">hhi")


_Frame: TypeAlias = tuple[bytearray, memoryview, int, int]
"""A buffer, a view of it, and the bounds of a frame in it."""

HANDLERS = "ottla.broker.handlers"
"""The package with the handlers of clients' requests, one module for each API."""


class Pipeline:
    """Takes request frames of all connections of a node."""

    def __init__(
        self,
        node: Node,
        served: Mapping[int, Served] = SERVED,
        package: str = HANDLERS,
    ) -> None:
        """Serve these APIs with the handlers in a package."""
        self._node = node
        self._served = served
        self._package = package
        self.apis: dict[int, Api] = {}
        """The APIs that were asked for so far."""
        self._imported: set[str] = set()
        """What was imported in slices for them."""
        self._authorizer: Authorizer | None = None
        self._quotas: Quotas | None = None
        self._is_guarded = False
        """True if there are quotas or an authorizer."""
        self._follower: Pipeline | None = None
        self.large_bytes = 0
        """The bytes of the large requests that are being decoded and handled."""

    @property
    def authorizer(self) -> Authorizer | None:
        """None while there is no authorizer: everybody may do everything."""
        return self._authorizer

    @authorizer.setter
    def authorizer(self, authorizer: Authorizer | None) -> None:
        self._authorizer = authorizer
        self._is_guarded = authorizer is not None or self._quotas is not None
        if self._follower is not None:
            self._follower.authorizer = authorizer

    def share_authorizer(self, follower: Pipeline) -> None:
        """Let another pipeline ask the authorizer of this one, also one that is set later.

        Quotas are not shared: the requests between brokers must not be held back.
        """
        self._follower = follower
        follower.authorizer = self._authorizer

    @property
    def quotas(self) -> Quotas | None:
        """None while there are no quotas."""
        return self._quotas

    @quotas.setter
    def quotas(self, quotas: Quotas | None) -> None:
        self._quotas = quotas
        self._is_guarded = quotas is not None or self._authorizer is not None

    def handle(
        self, connection: Connection, buffer: bytearray, view: memoryview, start: int, end: int
    ) -> None:
        """Take the request frame in [start, end); raise DecodeError if it is not valid.

        The bytes must stay as they are until the node has settled.
        """
        position = start + 10
        if position > end:
            self._too_short(connection, buffer, start, end)
            return
        key, version, correlation_id, length = _unpack_header(buffer, start)
        try:
            api = self.apis[key]
        except KeyError:
            served = self._served.get(key)
            if served is not None and not self._imported.issuperset(served.modules):
                self._import_first(connection, key, served, buffer, view, start, end)
                return
            api = self._load(key)
        try:
            decode = api.decoders[version]
        except KeyError:
            self._refuse_version(connection, api, version, correlation_id)
            return
        context_class, handle = api.context_class, api.handle
        context = context_class(api, connection, version, correlation_id)
        if length >= 0:
            position += length
            if position > end:
                raise DecodeError("the client id reaches past the end of the request")
            if not api.is_hot or self._is_guarded:
                context.client_id = _text(view[start + 10 : position])
        elif length != -1:
            raise DecodeError(f"the client id has the length {length}")
        if version >= api.first_flexible:
            if position < end and buffer[position] == 0:
                position += 1
            else:
                position = skip_tags(buffer, position, end)
        size = end - position
        if size > api.busy_step_bytes and (size > api.step_bytes or self._is_busy):
            api.metrics.request_bytes += end - start
            self._take_large(api, context, _body(buffer, view, position, end))
            return
        try:
            request = decode(version, buffer, view, position, end)
        except (IndexError, error) as cause:
            raise DecodeError(f"the {api.name} request ends too early") from cause
        except LargeRequest:
            api.metrics.request_bytes += end - start
            self._take_large(api, context, _body(buffer, view, position, end))
            return
        metrics = api.metrics
        metrics.request_bytes += end - start
        metrics.requests = number = metrics.requests + 1
        began_ms = None if number & metrics.mask else metrics.begin(context)
        try:
            if self._is_guarded:
                self._check(api, context)
            response = handle(self._node, request, context)
        except ApiError as refusal:
            response = api.refuse(request, refusal, context)
        if response is not None:
            if isinstance(response, Message):
                context.send(response)
            else:
                context.run_in_slices(_answer(request, context, response))
        if context.throttle_ms:
            _hold_back(context)
        if began_ms is not None:
            metrics.handled(context, began_ms)

    @property
    def _is_busy(self) -> bool:
        """True if requests wait that are handled in slices."""
        return len(self._node.sliced_work) > FEW_WAITING

    def _check(self, api: Api, context: RequestContext) -> None:
        """Note how long the sender is held back; raise ApiError if it may not use the API."""
        if self._quotas is not None:
            context.throttle_ms = self._quotas.throttle_ms(context)
        if self._authorizer is not None and not api.is_open:
            self._authorizer.check(context)

    def _take_large(self, api: Api, context: RequestContext, body: bytes | memoryview) -> None:
        """Take a request that may take long to decode, and hold its sender back if need be."""
        self.take_in_slices(api, context, body)
        if context.throttle_ms:
            _hold_back(context)

    def take_in_slices(self, api: Api, context: RequestContext, body: bytes | memoryview) -> None:
        """Pass a request without its header through all other stages, in slices."""
        metrics = api.metrics
        metrics.requests += 1
        began_ms = metrics.begin(context)
        refusal: ApiError | None = None
        if self.quotas is not None:
            try:
                context.throttle_ms = self.quotas.throttle_ms(context)
            except ApiError as error:
                refusal = error
        steps = self._decode_and_handle(api, context, body, refusal)
        context.run_in_slices(self.handle_large(len(body), steps))
        metrics.handled(context, began_ms)

    def handle_large(self, size: int, steps: Steps[None]) -> Steps[None]:
        """Run the steps that decode and handle a request, when there is room for them.

        Decoded, a request takes many times its bytes: not all of them at the same time.
        """
        while self.large_bytes and self.large_bytes + size > MOST_LARGE_BYTES:
            yield
        if not self.large_bytes:
            self._node.pause_collection(True)
        self.large_bytes += size
        try:
            yield from steps
        finally:
            self.large_bytes -= size
            if not self.large_bytes:
                self._node.pause_collection(False)

    def _decode_and_handle(
        self, api: Api, context: RequestContext, body: bytes | memoryview, refusal: ApiError | None
    ) -> Steps[None]:
        """Return the steps that decode the body of a request, handle it and answer it."""
        yield from import_in_steps(api.large_modules)
        decode = step_decoder(api.request_class, context.version, api.most_items)
        request: Message | None = None
        try:
            request = yield from decode(body, 0, len(body))
        except DecodeError as error:
            context.disconnect(error)
        yield from _free(body)
        if request is None:
            return
        try:
            if refusal is not None:
                raise refusal
            if self.authorizer is not None and not api.is_open:
                self.authorizer.check(context)
            response = api.handle_large(self._node, request, context)
        except ApiError as refused:
            response = api.refuse(request, refused, context)
        if isinstance(response, Message):
            yield from context.send_in_slices(response)
        elif response is not None:
            yield from _answer(request, context, response)

    def _import_first(
        self,
        connection: Connection,
        key: int,
        served: Served,
        buffer: bytearray,
        view: memoryview,
        start: int,
        end: int,
    ) -> None:
        """Import the modules of an API in slices, then handle its first request."""
        frame = buffer, view, start, end
        importing = _Importing()
        _, version, *_ = _unpack_header(buffer, start)

        def steps() -> Steps[None]:
            yield from import_in_steps(served.modules)
            self._imported.update(served.modules)
            api = self.api(key)
            yield
            api.make_decoder(version)
            yield
            if connection.parked is importing:
                connection.parked = None
                self._handle_parked(connection, frame)

        if self._node.sliced_work.run(steps(), lambda: not connection.closed):
            self.handle(connection, buffer, view, start, end)
        else:
            connection.parked = importing
            if len(buffer) <= ONE_FRAME_BYTES:
                copy = buffer[start:end]
                frame = copy, memoryview(copy), 0, len(copy)

    def _handle_parked(self, connection: Connection, frame: _Frame) -> None:
        try:
            self.handle(connection, *frame)
        except DecodeError as error:
            connection.close_after_replies(str(error))
        self._node.ready.append(connection)

    def request_count(self) -> int:
        """Return how many requests there were."""
        return sum(api.metrics.requests for api in self.apis.values())

    def api(self, key: int) -> Api:
        """Return an API that is served here. Raise DecodeError if it is not."""
        return self.apis.get(key) or self._load(key)

    def _load(self, key: int) -> Api:
        if key not in self._served:
            raise DecodeError(f"API {key} is not served here")
        served = self._served[key]
        package = HANDLERS if served.is_forwarded else self._package
        api = self.apis[key] = Api(key, self._node, served, package)
        return api

    def _too_short(self, connection: Connection, buffer: bytearray, start: int, end: int) -> None:
        """Refuse a frame with no room for a client id; an unknown version needs none."""
        try:
            key, version, correlation_id = _PREFIX.unpack_from(buffer, start)
        except error:
            raise DecodeError("the frame is too short for a request") from None
        if start + _PREFIX.size > end:
            raise DecodeError("the frame is too short for a request")
        api = self.api(key)
        if version in api.decoders:
            raise DecodeError("the client id is cut off")
        self._refuse_version(connection, api, version, correlation_id)

    def _refuse_version(
        self, connection: Connection, api: Api, version: int, correlation_id: int
    ) -> None:
        """Answer ApiVersions in version 0 (KIP-511); raise DecodeError for all other APIs."""
        if api.key != ApiKey.API_VERSIONS:
            raise DecodeError(f"version {version} of {api.name} is not served here")
        from ottla.broker.handlers.api_versions import unsupported_version

        RequestContext(api, connection, 0, correlation_id).send(unsupported_version())


def _answer(request: Any, context: RequestContext, steps: Steps[Message | None]) -> Steps[None]:
    """Drive a handler to its end, and answer with the response that it returns."""
    try:
        response = yield from steps
    except ApiError as refusal:
        response = context.api.refuse(request, refusal, context)
    except DecodeError as error:
        context.disconnect(error)
        return
    if response is not None:
        yield from context.send_in_slices(response)


class _Importing:
    """Stands in `Connection.parked` until what its next request needs is imported."""

    parts: list[Part] | None = None

    def abandon(self) -> None:
        """Stop waiting: the connection is gone."""


def _hold_back(context: RequestContext) -> None:
    from ottla.broker.quotas import hold_back

    hold_back(context)


def _body(buffer: bytearray, view: memoryview, start: int, end: int) -> bytes | memoryview:
    """Return the body of a request in slices: a copy, unless its buffer is not used again."""
    body = view[start:end]
    return body if len(buffer) > ONE_FRAME_BYTES else bytes(body)


def _free(body: bytes | memoryview) -> Steps[None]:
    """Free the memory of a body that was not copied, in steps."""
    if isinstance(body, memoryview):
        buffer = body.obj
        assert isinstance(buffer, bytearray)
        body.release()
        while shrink(buffer):
            yield


def _text(data: memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as cause:
        raise DecodeError("the client id is not UTF-8") from cause
