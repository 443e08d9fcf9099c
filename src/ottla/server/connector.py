"""Opens TCP connections to other brokers without blocking the loop.

A host name is looked up in a thread of its own: a name server that does not answer must not
hold up the thread that syncs files.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from ottla.network.stream import Stream
from ottla.server.background import BackgroundThread
from ottla.server.socket_stream import SocketStream, use_cubic

_NUMERIC: Final = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
_BEGUN: Final = (0, errno.EINPROGRESS)

Address: TypeAlias = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
Found: TypeAlias = Sequence[tuple[socket.AddressFamily, socket.SocketKind, int, str, Address]]


class SocketConnector:
    """The Connector of the engine on sockets. `call` runs something on the loop soon."""

    def __init__(self, call: Callable[[Callable[[], object]], None]) -> None:
        self._call = call
        self._resolver = BackgroundThread(lambda: call(self._resolver.deliver), "ottla-resolver")
        self._attempts: dict[tuple[str, int], int] = {}

    def connect(self, host: str, port: int, done: Callable[[Stream | OSError], None]) -> None:
        try:
            found = _look_up(host, port, _NUMERIC)
        except socket.gaierror:
            self._resolver.submit(
                lambda: _look_up(host, port, 0),
                lambda found: done(self._begin(host, port, found)),
            )
        else:
            self._call(lambda: done(self._begin(host, port, found)))

    def _begin(self, host: str, port: int, found: Found | OSError) -> Stream | OSError:
        """Begin to connect to one of the addresses, with every attempt to the next one."""
        if isinstance(found, OSError):
            return found
        attempt = self._attempts.get((host, port), 0)
        self._attempts[host, port] = attempt + 1
        family, kind, protocol, _, address = found[attempt % len(found)]
        try:
            sock = socket.socket(family, kind, protocol)
        except OSError as error:
            return error
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        use_cubic(sock)
        code = sock.connect_ex(address)
        if code in _BEGUN:
            return SocketStream(sock)
        sock.close()
        return OSError(code, f"cannot connect to {host}:{port}")


def _look_up(host: str, port: int, flags: int) -> Found:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
