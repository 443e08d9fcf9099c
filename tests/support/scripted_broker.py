"""A scripted broker on a real socket. Functions answer its requests, in chosen versions."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, TypeAlias, TypeVar

from ottla.client.address import Address
from ottla.client.cluster import Client
from ottla.model.errors import ErrorCode
from ottla.wire.api_table import API_INFO, ApiKey
from ottla.wire.apis import request_class
from ottla.wire.codec import decoder, encoder
from ottla.wire.header import decode_request_header, response_header
from ottla.wire.message import Message
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.messages.describe_topic_partitions import DescribeTopicPartitionsResponse
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

SIZE = Struct(">i")
NODE_ID = 7
M = TypeVar("M", bound=Message)
Handler: TypeAlias = Callable[[Any], Message | None]  # given a request of the API it is for
Ranges: TypeAlias = Mapping[int, tuple[int, int]]
Connect: TypeAlias = Callable[..., Client]


class FakeBroker:
    """Serves until closed; `requests` has all it was asked, with versions.

    A handler that returns None sends no answer; one that raises ConnectionError hangs up.
    `damage` may change every answer after the negotiation; `cut` may leave the end of a frame out,
    after which it hangs up. With a `context` it speaks TLS.
    """

    def __init__(self, ranges: Ranges | None = None, context: ssl.SSLContext | None = None) -> None:
        self._context = context
        everything = {key: (info.min_version, info.max_version) for key, info in API_INFO.items()}
        self.ranges: Ranges = everything if ranges is None else ranges
        self.handlers: dict[int, Handler] = {
            ApiKey.METADATA: self.metadata,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda _: DescribeTopicPartitionsResponse(),
        }
        self.requests: list[tuple[int, Any]] = []
        self.topics: dict[str, MetadataResponseTopic] = {}
        self.damage: Callable[[bytes], bytes] = lambda answer: answer
        self.cut: Callable[[bytes], bytes] = lambda frame: frame
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def address(self) -> Address:
        return Address(*self._listener.getsockname()[:2])

    def asked(self, kind: type[M]) -> list[M]:
        """Return the requests of one kind, in order."""
        return [request for _, request in self.requests if isinstance(request, kind)]

    def versions_asked(self) -> dict[str, int]:
        """Return the last version used for each request."""
        return {type(request).__name__: version for version, request in self.requests}

    def add_topic(
        self, name: str, partitions: int, *, topic_id: bytes = b"0123456789abcdef"
    ) -> None:
        """Add a topic whose partitions this broker leads."""
        self.topics[name] = MetadataResponseTopic(
            name=name,
            topic_id=topic_id,
            partitions=[
                MetadataResponsePartition(
                    partition_index=index,
                    leader_id=NODE_ID,
                    replica_nodes=[NODE_ID],
                    isr_nodes=[NODE_ID],
                )
                for index in range(partitions)
            ],
        )

    def metadata(self, request: Message) -> MetadataResponse:
        assert isinstance(request, MetadataRequest)
        if request.topics is None:
            topics = list(self.topics.values())
        else:
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics = [
                self.topics.get(
                    topic.name or "", MetadataResponseTopic(name=topic.name, error_code=missing)
                )
                for topic in request.topics
            ]
        broker = MetadataResponseBroker(
            node_id=NODE_ID, host=self.address.host, port=self.address.port
        )
        return MetadataResponse(brokers=[broker], controller_id=NODE_ID, topics=topics)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        for connection in self._sockets:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the client has gone already
        for thread in self._threads[1:]:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with self._secured(connection) as secured:
                self._serve_requests(secured)
        except OSError:
            connection.close()

    def _secured(self, connection: socket.socket) -> socket.socket:
        if self._context is None:
            return connection
        return self._context.wrap_socket(connection, server_side=True)

    def _serve_requests(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as incoming:
            try:
                while prefix := incoming.read(SIZE.size):
                    answer = self._answer(incoming.read(SIZE.unpack(prefix)[0]))
                    if answer is None:
                        continue
                    frame = SIZE.pack(len(answer)) + answer
                    sent = self.cut(frame)
                    connection.sendall(sent)
                    if len(sent) < len(frame):
                        return
            except ConnectionError:
                return

    def _answer(self, frame: bytes) -> bytes | None:
        header = decode_request_header(frame, 0, len(frame))
        key, version = header.api_key, header.api_version
        if key == ApiKey.API_VERSIONS:
            return self._api_versions(version, header.correlation_id)
        lowest, highest = self.ranges[key]
        assert lowest <= version <= highest
        request = decoder(request_class(key), version)(frame, header.body, len(frame))[0]
        self.requests.append((version, request))
        response = self.handlers[key](request)
        if response is None:
            return None
        body = encoder(type(response), version)(response)
        return response_header(key, version, header.correlation_id) + self.damage(body)

    def _api_versions(self, version: int, correlation_id: int) -> bytes:
        known = self.ranges[ApiKey.API_VERSIONS][1]
        ranges = [
            ApiVersion(api_key=key, min_version=lowest, max_version=highest)
            for key, (lowest, highest) in self.ranges.items()
        ]
        response = ApiVersionsResponse(api_keys=ranges)
        if version > known:
            version = 0
            # Brokers older than Kafka 2.4 do not say which versions they have.
            response = ApiVersionsResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=ranges if known > 2 else []
            )
        header = response_header(ApiKey.API_VERSIONS, version, correlation_id)
        return header + encoder(ApiVersionsResponse, version)(response)


StartBroker: TypeAlias = Callable[..., FakeBroker]
