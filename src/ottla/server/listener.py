"""Listening sockets, and the addresses that clients are told."""

from __future__ import annotations

import errno
import socket
from typing import TypeAlias

from ottla.config.listeners import Endpoint
from ottla.server.errors import StartupError
from ottla.server.socket_stream import use_cubic

_BACKLOG = 1024
_Found: TypeAlias = tuple[
    socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int] | tuple[str, int, int, int]
]


class Listener:
    """A bound socket; it takes connections only after `listen`."""

    def __init__(
        self, endpoint: Endpoint, send_buffer_bytes: int, receive_buffer_bytes: int
    ) -> None:
        self.name = endpoint.listener_name
        self.host = endpoint.host
        self.sock = _bind(endpoint)
        _tune(self.sock, send_buffer_bytes, receive_buffer_bytes)
        self.port: int = self.sock.getsockname()[1]
        self.fd = self.sock.fileno()

    def listen(self) -> None:
        self.sock.listen(_BACKLOG)
        self.sock.setblocking(False)

    def accept(self) -> tuple[socket.socket, str] | None:
        """Return the next connection and its peer's host, or None if nobody waits."""
        try:
            sock, address = self.sock.accept()
        except (BlockingIOError, ConnectionError):
            return None
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (
            OSError
        ):  # macOS: the peer is gone already. Others that wait come with the next event
            sock.close()
            return None
        host: str = address[0]
        return sock, host.removeprefix("::ffff:")

    def close(self) -> None:
        self.sock.close()


def _numeric(host: str | None, port: int) -> list[_Found]:
    """Return what `getaddrinfo` returns for an IPv4 address. It imports a codec for host names."""
    try:
        socket.inet_pton(socket.AF_INET, host or "")
    except OSError:
        return []
    return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host or "", port))]


def _bind(endpoint: Endpoint) -> socket.socket:
    host = endpoint.host or None
    try:
        found = _numeric(host, endpoint.port) or socket.getaddrinfo(
            host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as error:
        raise StartupError(
            f"listener {endpoint.listener_name}: the host {endpoint.host!r} cannot be resolved"
            f" ({error}); set `listeners` to an address of this machine"
        ) from error
    if host is None:  # all addresses: one IPv6 socket takes IPv4 as well
        found.sort(key=lambda item: item[0] != socket.AF_INET6)
    problem: OSError | None = None
    for family, kind, protocol, _, address in found:
        try:
            sock = socket.socket(family, kind, protocol)
        except OSError as error:
            problem = error
            continue
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if host is None else 1)
            sock.bind(address)
        except OSError as error:
            sock.close()
            problem = error
            if error.errno == errno.EADDRINUSE:
                break
        else:
            return sock
    assert problem is not None
    raise StartupError(_explain(endpoint, problem)) from problem


def _explain(endpoint: Endpoint, problem: OSError) -> str:
    where = f"{endpoint.host or '*'}:{endpoint.port}"
    if problem.errno == errno.EADDRINUSE:
        return (
            f"{where} is in use by another process; "
            "stop it, or choose another port (--port 0 picks a free one)"
        )
    if problem.errno == errno.EACCES:
        return f"not allowed to listen on {where}; choose a port above 1023"
    return f"cannot listen on {where}: {problem.strerror}"


def _tune(sock: socket.socket, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
    """Set socket options that accepted connections inherit."""
    if send_buffer_bytes >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    if receive_buffer_bytes >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    use_cubic(sock)
