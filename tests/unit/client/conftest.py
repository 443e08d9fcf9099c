"""Fixtures: scripted brokers on real sockets, and clients."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator

import pytest

from ottla.client.address import Address
from ottla.client.cluster import Client
from ottla.client.security.settings import PLAINTEXT, Security
from tests.support.scripted_broker import FakeBroker, Ranges


@pytest.fixture
def start_broker() -> Iterator[Callable[..., FakeBroker]]:
    brokers: list[FakeBroker] = []

    def start(ranges: Ranges | None = None, context: ssl.SSLContext | None = None) -> FakeBroker:
        brokers.append(FakeBroker(ranges, context))
        return brokers[-1]

    yield start
    for broker in brokers:
        broker.close()


@pytest.fixture
def fake_broker(start_broker: Callable[..., FakeBroker]) -> FakeBroker:
    return start_broker()


@pytest.fixture
def connect() -> Iterator[Callable[..., Client]]:
    clients: list[Client] = []

    def open_client(
        *addresses: Address, timeout_ms: float = 5_000, security: Security = PLAINTEXT
    ) -> Client:
        clients.append(Client(addresses, timeout_ms=timeout_ms, security=security))
        return clients[-1]

    yield open_client
    for client in clients:
        client.close()


@pytest.fixture
def serve_once() -> Iterator[Callable[[bytes], Address]]:
    """Start a server that answers the first request with fixed bytes, then closes."""
    threads: list[threading.Thread] = []

    def start(answer: bytes) -> Address:
        listener = socket.create_server(("127.0.0.1", 0))

        def serve() -> None:
            with listener, listener.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(answer)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return Address(*listener.getsockname()[:2])

    yield start
    for thread in threads:
        thread.join()


@pytest.fixture
def silent_address() -> Iterator[Address]:
    """Return the address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield Address(*listener.getsockname()[:2])
