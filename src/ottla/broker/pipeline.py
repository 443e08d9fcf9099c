"""The way of every request: header, decode, principal, quota, authorisation, handler, reply.

    header          API, version and client; an unknown API or version ends here
    decode          a codec written by hand, or one made from the schema
    principal       who the connection belongs to (`Connection.principal`)
    quota           how long the sender is to be held back (`Quotas`), if there are any
    authorisation   whether the principal may use the API (`Authorizer`), if there is one
    handler         `handlers/<api>.py`
    reply           encoded by `RequestContext`, in the order of the requests
    throttle        the connection is held back for as long as the quota says
    metrics         counts and times of each API (`RequestMetrics`)

Handlers and message classes are imported with the first request that needs them, so that a broker
starts with next to nothing.
"""

from __future__ import annotations

from struct import Struct, error
from typing import TYPE_CHECKING

from ottla.broker.api import Api
from ottla.broker.authorizer import Authorizer
from ottla.broker.connection import Connection
from ottla.broker.context import RequestContext
from ottla.broker.handlers import SERVED
from ottla.broker.quotas import Quotas, hold_back
from ottla.model.errors import ApiError
from ottla.wire.api_table import ApiKey
from ottla.wire.primitives import DecodeError, skip_tags

if TYPE_CHECKING:
    from ottla.broker.node import Node

_HEADER = Struct(">hhih")  # api key, version, correlation id, length of the client id
_PREFIX = Struct(">hhi")


class Pipeline:
    """Takes request frames of all connections of a node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.apis: dict[int, Api] = {}
        """The APIs that were asked for so far."""
        self.authorizer: Authorizer | None = None
        """None while there is no authorizer: everybody may do everything."""
        self.quotas: Quotas | None = None
        """None while there are no quotas."""

    def handle(
        self, connection: Connection, buffer: bytearray, view: memoryview, start: int, end: int
    ) -> None:
        """Take the request frame in [start, end); raise DecodeError when it is not one.

        The bytes must stay as they are until the node has settled.
        """
        position = start + 10
        if position > end:
            self._too_short(connection, buffer, start, end)
            return
        key, version, correlation_id, length = _HEADER.unpack_from(buffer, start)
        api = self.apis.get(key)
        if api is None:
            api = self._load(key)
        decode = api.decoders.get(version)
        if decode is None:
            self._refuse_version(connection, api, version, correlation_id)
            return
        context = api.context_class(api, connection, version, correlation_id)
        if length >= 0:
            position += length
            if position > end:
                raise DecodeError("the client id reaches past the end of the request")
            if not api.is_hot or self.quotas is not None:
                context.client_id = _text(view[start + 10 : position])
        elif length != -1:
            raise DecodeError(f"the client id has the length {length}")
        if version >= api.first_flexible:
            if position < end and buffer[position] == 0:
                position += 1
            else:
                position = skip_tags(buffer, position, end)
        try:
            request = decode(version, buffer, view, position, end)
        except (IndexError, error) as cause:
            raise DecodeError(f"the {api.name} request ends too early") from cause
        metrics = api.metrics
        metrics.request_bytes += end - start
        metrics.requests = number = metrics.requests + 1
        began_ms = None if number & metrics.mask else metrics.begin(context)
        try:
            if self.quotas is not None:
                context.throttle_ms = self.quotas.throttle_ms(context)
            if self.authorizer is not None and not api.is_open:
                self.authorizer.check(context)
            response = api.handle(self._node, request, context)
        except ApiError as refusal:
            response = api.refuse(request, refusal, context)
        if response is not None:
            context.send(response)
        if context.throttle_ms:
            hold_back(context)
        if began_ms is not None:
            metrics.handled(context, began_ms)

    def _load(self, key: int) -> Api:
        if key not in SERVED:
            raise DecodeError(f"API {key} is not served here")
        api = self.apis[key] = Api(key, self._node)
        return api

    def _too_short(self, connection: Connection, buffer: bytearray, start: int, end: int) -> None:
        """Refuse a frame with no room for a client id; an unknown version needs none."""
        try:
            key, version, correlation_id = _PREFIX.unpack_from(buffer, start)
        except error:
            raise DecodeError("the frame is too short for a request") from None
        if start + _PREFIX.size > end:
            raise DecodeError("the frame is too short for a request")
        api = self.apis.get(key) or self._load(key)
        if version in api.decoders:
            raise DecodeError("the client id is cut off")
        self._refuse_version(connection, api, version, correlation_id)

    def _refuse_version(
        self, connection: Connection, api: Api, version: int, correlation_id: int
    ) -> None:
        """Answer an ApiVersions newer than ours in version 0; others cannot be (KIP-511)."""
        if api.key != ApiKey.API_VERSIONS:
            raise DecodeError(f"version {version} of {api.name} is not served here")
        from ottla.broker.handlers.api_versions import unsupported_version

        RequestContext(api, connection, 0, correlation_id).send(unsupported_version())


def _text(data: memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as cause:
        raise DecodeError("the client id is not UTF-8") from cause
