"""Opening the socket of a connection: TCP, and TLS over it where the security has that.

One Transport serves all connections of a client, so certificates are read once. A socket
is blocking; a timeout set on it holds for TLS as for TCP. What only TLS needs is imported
only then: commands start faster without it.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from ottla.admin.address import Address
from ottla.admin.deadline import Deadline
from ottla.admin.errors import TimedOut, Unreachable
from ottla.admin.security import PLAINTEXT, Security

if TYPE_CHECKING:
    from ottla.admin.tls import TlsClient


class Transport:
    """Opens sockets with one security; SettingError when that cannot be used."""

    def __init__(self, security: Security) -> None:
        self.sasl = security.sasl
        self.tls: TlsClient | None = None
        if security.tls is not None:
            from ottla.admin.tls import TlsClient

            self.tls = TlsClient(security.tls)

    def open(self, address: Address, deadline: Deadline) -> socket.socket:
        """A connected socket, its TLS handshake done; the errors say what to do."""
        connected = _connect(address, deadline)
        if self.tls is None:
            return connected
        try:
            return self.tls.secure(connected, address, deadline)
        except BaseException:
            connected.close()
            raise


PLAIN_TRANSPORT = Transport(PLAINTEXT)


def _connect(address: Address, deadline: Deadline) -> socket.socket:
    try:
        connection = socket.create_connection(address, timeout=deadline.remaining_s())
    except TimeoutError:
        raise TimedOut(
            f"{address} did not accept a connection within {deadline.timeout_ms / 1000:g} s"
        ) from None
    except OSError as error:
        raise Unreachable(f"{address}: {error.strerror or error}") from None
    except (OverflowError, UnicodeError):  # brokers may advertise anything
        raise Unreachable(f"{address}: this is no address") from None
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
