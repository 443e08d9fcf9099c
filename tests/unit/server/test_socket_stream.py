"""A socket that becomes readable when enough has arrived."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from select import select

import pytest

from ottla.server.socket_stream import SocketStream

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has this")
LONG_S = 10.0


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        with near, far:
            yield near, far


def is_readable(sock: socket.socket, timeout_s: float = 0.0) -> bool:
    return bool(select([sock], [], [], timeout_s)[0])


def test_it_is_readable_when_as_much_has_arrived_as_is_expected(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    near, far = ends
    stream = SocketStream(near)
    stream.expect(200_000)
    far.sendall(bytes(100_000))
    assert not is_readable(near)
    far.sendall(bytes(100_000))
    assert is_readable(near, LONG_S)


def test_it_is_readable_when_less_is_expected_than_has_arrived(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    near, far = ends
    stream = SocketStream(near)
    stream.expect(200_000)
    far.sendall(bytes(10))
    assert not is_readable(near)
    stream.expect(1)
    assert is_readable(near, LONG_S)


def test_it_is_readable_when_the_peer_sends_no_more(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    near, far = ends
    SocketStream(near).expect(200_000)
    far.sendall(bytes(10))
    far.shutdown(socket.SHUT_WR)
    assert is_readable(near, LONG_S)
