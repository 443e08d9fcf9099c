"""From a request frame to its handler and back: decode, call, encode.

An API is advertised by ApiVersions exactly when it is in HANDLERS (or is Produce or Fetch,
which have codecs of their own). Handlers and message classes are imported with the first
request that needs them, so that a broker starts with next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from struct import Struct
from typing import TYPE_CHECKING, TypeAlias

from ottla.broker import fetch, produce
from ottla.broker.connection import Connection
from ottla.broker.context import RequestContext
from ottla.model.errors import ApiError
from ottla.ports import Buffer
from ottla.wire.api_table import API_INFO, ApiKey
from ottla.wire.apis import request_class, response_class
from ottla.wire.codec import decoder, encoder
from ottla.wire.header import RequestHeader, decode_request_header, response_header
from ottla.wire.message import Message
from ottla.wire.primitives import DecodeError

if TYPE_CHECKING:
    from ottla.broker.node import Node

Handler: TypeAlias = Callable[["Node", Message, RequestContext], Message | None]

HANDLERS: dict[int, str] = {
    key: key.name.lower()
    for key in (
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.FIND_COORDINATOR,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.API_VERSIONS,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_RECORDS,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.DELETE_GROUPS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.OFFSET_DELETE,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
    )
}
"""API key to the module in `ottla.broker.handlers` that serves it, in all versions known."""

_CACHED_REPLIES = 64
_SIZE = Struct(">i")


def advertised() -> list[tuple[int, int, int]]:
    """(key, oldest, newest version) of every API this broker serves."""
    own = [
        (int(ApiKey.PRODUCE), produce.ADVERTISED_MIN_VERSION, produce.MAX_VERSION),
        (int(ApiKey.FETCH), fetch.MIN_VERSION, fetch.MAX_VERSION),
    ]
    return own + [
        (int(key), API_INFO[key].min_version, API_INFO[key].max_version) for key in HANDLERS
    ]


class Router:
    """Serves every API but Produce and Fetch."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._handlers: dict[int, Handler] = {}
        self._metadata_cache: dict[tuple[int, str, bytes], bytes] = {}

    def forget_metadata(self) -> None:
        """Cluster metadata changed: Metadata replies must be made anew."""
        self._metadata_cache.clear()

    def route(self, connection: Connection, buffer: Buffer, start: int, end: int) -> None:
        """Serve the request in [start, end) and queue its reply."""
        header = decode_request_header(buffer, start, end)
        key, version = header.api_key, header.api_version
        if key not in HANDLERS:
            raise DecodeError(f"API {key} is not served here")
        if header.body < 0:
            self._refuse_version(connection, key, version, header.correlation_id)
            return
        if key == ApiKey.METADATA:
            body = self._metadata(connection, header, buffer, end)
            if body is not None:
                _send(connection, response_header(key, version, header.correlation_id), body)
            return
        response = self._serve(connection, header, buffer, end)
        if response is not None:
            self.reply(connection, key, version, header.correlation_id, response)

    def reply(
        self, connection: Connection, key: int, version: int, correlation_id: int, response: Message
    ) -> None:
        """Queue the response to a request."""
        body = encoder(type(response), version)(response)
        _send(connection, response_header(key, version, correlation_id), body)

    def _metadata(
        self, connection: Connection, header: RequestHeader, buffer: Buffer, end: int
    ) -> bytes | None:
        """Metadata replies are large and asked for again and again: kept until they change.

        Not those with errors: a topic that could not be created may be the next time.
        None when the reply comes later, after topics were created.
        """
        question = (header.api_version, connection.listener, bytes(buffer[header.body : end]))
        body = self._metadata_cache.get(question)
        if body is None:
            from ottla.wire.messages.metadata import MetadataResponse

            response = self._serve(connection, header, buffer, end)
            if response is None:
                return None
            assert isinstance(response, MetadataResponse)
            body = encoder(MetadataResponse, header.api_version)(response)
            if len(self._metadata_cache) >= _CACHED_REPLIES:
                self._metadata_cache.clear()
            if not response.error_code and not any(t.error_code for t in response.topics):
                self._metadata_cache[question] = body
        return body

    def _serve(
        self, connection: Connection, header: RequestHeader, buffer: Buffer, end: int
    ) -> Message | None:
        """The handler's response, or None when it comes later."""
        key, version = header.api_key, header.api_version
        request, _ = decoder(request_class(key), version)(buffer, header.body, end)
        context = RequestContext(self._node, connection, header)
        handler = self._handlers.get(key)
        if handler is None:
            handler = import_module(f"ottla.broker.handlers.{HANDLERS[key]}").handle
            self._handlers[key] = handler
        try:
            return handler(self._node, request, context)
        except ApiError as error:
            return _refusal(key, error)

    def _refuse_version(
        self, connection: Connection, key: int, version: int, correlation_id: int
    ) -> None:
        """An ApiVersions newer than ours is answered in version 0; others cannot be (KIP-511)."""
        if key != ApiKey.API_VERSIONS:
            raise DecodeError(f"version {version} of {ApiKey(key).name} is not served here")
        from ottla.broker.handlers.api_versions import unsupported_version

        response = unsupported_version()
        body = encoder(type(response), 0)(response)
        _send(connection, response_header(key, 0, correlation_id), body)


def _send(connection: Connection, header: bytes, body: bytes) -> None:
    connection.out.append(_SIZE.pack(len(header) + len(body)) + header + body)


def _refusal(key: int, error: ApiError) -> Message:
    """A response that carries an error for the request as a whole."""
    response = response_class(key)()
    if "error_code" not in response.__slots__:
        raise AssertionError(f"{type(response).__name__} has no room for {error}") from error
    response.error_code = error.code  # type: ignore[attr-defined]
    if "error_message" in response.__slots__:
        response.error_message = error.message  # type: ignore[attr-defined]
    return response
