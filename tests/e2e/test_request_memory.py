"""Memory for requests that arrive in pieces: bounded, and not to be occupied by those who stall."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Producer

from ottla.testing import Cluster

ANNOUNCED = 8_000_000
LIMITS = {"queued.max.request.bytes": "8388608", "socket.request.max.bytes": "8388608"}


@pytest.fixture
def stall() -> Iterator[Callable[[str, int], None]]:
    """Open a connection that announces a large request and sends a part of it."""
    with ExitStack() as stack:

        def open_one(bootstrap_servers: str, sent: int) -> None:
            host, _, port = bootstrap_servers.rpartition(":")
            sock = stack.enter_context(socket.create_connection((host, int(port)), timeout=10))
            sock.setblocking(False)
            data = ANNOUNCED.to_bytes(4) + bytes(sent)
            while data:
                try:
                    data = data[sock.send(data) :]
                except BlockingIOError:
                    return  # the broker takes no more of it

        yield open_one


def produce_large(bootstrap_servers: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "message.timeout.ms": 25_000})
    failures: list[object] = []

    def delivered(error: object, message: object) -> None:
        if error:
            failures.append(error)

    for _ in range(5):
        producer.produce("t", bytes(900_000), on_delivery=delivered)
    assert producer.flush(30) == 0
    assert not failures


def test_a_length_alone_occupies_nothing(
    start_cluster: Callable[..., Cluster], stall: Callable[[str, int], None]
) -> None:
    cluster = start_cluster(LIMITS)
    for _ in range(50):
        stall(cluster.bootstrap_servers, 100)
    produce_large(cluster.bootstrap_servers)


@pytest.mark.slow
def test_who_stalls_in_the_middle_is_closed_when_others_wait(
    start_cluster: Callable[..., Cluster], stall: Callable[[str, int], None]
) -> None:
    cluster = start_cluster(LIMITS)
    for _ in range(3):
        stall(cluster.bootstrap_servers, 3_000_000)
    produce_large(cluster.bootstrap_servers)
