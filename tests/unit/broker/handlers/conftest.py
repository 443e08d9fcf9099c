"""A whole node in memory, asked by request frames as a client sends them."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack

import pytest

from ottla.broker.connection import Connection
from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.ports import Files, HelperProcesses
from ottla.testing.fakes import fake_ports
from ottla.wire.apis import response_class
from ottla.wire.codec import decoder, encoder
from ottla.wire.header import response_header
from ottla.wire.message import Message


class Client:
    """A connection to a node; asks and hears the answer."""

    def __init__(self, node: Node, listener: str = "PLAINTEXT") -> None:
        self.node = node
        self.connection = Connection("127.0.0.1", listener)

    def ask(self, request: Message, version: int | None = None) -> Message:
        """Return the response to a request in this version, by default the newest."""
        version = request.MAX_VERSION if version is None else version
        flexible = request.FIRST_FLEXIBLE_VERSION
        tags = b"\0" if flexible is not None and version >= flexible else b""
        header = pack(">hhih", request.API_KEY, version, 7, 0) + tags
        frame = bytearray(header + encoder(type(request), version)(request))
        self.node.advance()
        self.node.handle(self.connection, frame, memoryview(frame), 0, len(frame))
        self.node.settle()
        (reply,) = self.connection.out
        self.connection.out.clear()
        assert isinstance(reply, bytes)
        start = 4 + len(response_header(request.API_KEY, version, 7))
        decode = decoder(response_class(request.API_KEY), version)
        response, end = decode(reply, start, len(reply))
        assert end == len(reply)
        return response


@pytest.fixture
def start_node() -> Callable[..., Node]:
    """Start a node on given files with given settings."""

    def start(
        files: Files | None = None, *, helpers: HelperProcesses | None = None, **settings: str
    ) -> Node:
        properties = {name.replace("_", "."): text for name, text in settings.items()}
        properties.setdefault("log.dirs", "/data")
        config = BrokerConfig(properties)
        endpoints = [
            endpoint._replace(host=endpoint.host or "localhost")
            for endpoint in config.network.advertised_listeners
        ]
        node = Node(config, endpoints, fake_ports(files, helpers=helpers))
        node.start()
        return node

    return start


@pytest.fixture
def connect() -> Callable[..., Client]:
    return Client


@pytest.fixture
def node(start_node: Callable[..., Node]) -> Node:
    return start_node()


@pytest.fixture
def ask(node: Node) -> Callable[..., Message]:
    return Client(node).ask
