"""Prometheus gets its figures, whatever other clients of the endpoint do."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from ottla.server.metrics_endpoint import MOST_CONNECTIONS, MetricsEndpoint


def answer(take: Callable[[bytes], None]) -> None:
    take(b"figure 1\n")


@pytest.fixture
def port() -> Iterator[int]:
    endpoint = MetricsEndpoint("127.0.0.1", 0, answer)
    endpoint.start()
    yield endpoint.port
    endpoint.close()


def scrape(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as response:
        return bytes(response.read())


@pytest.mark.parametrize("count", [MOST_CONNECTIONS - 1, 10 * MOST_CONNECTIONS])
def test_half_requests_keep_nobody_waiting(port: int, count: int) -> None:
    connections = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port), timeout=20)
        connection.sendall(b"GET /met")
        connections.append(connection)
    assert scrape(port) == b"figure 1\n"
    for connection in connections[:-MOST_CONNECTIONS]:
        assert connection.recv(1) == b""
    for connection in connections:
        connection.close()


def test_many_scrapes_one_after_the_other(port: int) -> None:
    assert {scrape(port) for _ in range(3 * MOST_CONNECTIONS)} == {b"figure 1\n"}
