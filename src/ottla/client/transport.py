"""Opens sockets: TCP, with TLS if the security settings say so.

All connections of a client share one Transport, so certificates are read once. Sockets are
blocking, and their timeouts also apply to TLS. The TLS code is imported only if it is needed,
so that commands start faster without it.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from ottla.client.address import Address
from ottla.client.deadline import Deadline
from ottla.client.errors import TimedOut, Unreachable
from ottla.client.security.settings import PLAINTEXT, Security

if TYPE_CHECKING:
    from ottla.client.security.tls import TlsClient


class Transport:
    """Opens sockets with these security settings. Raises SettingError if they are invalid."""

    def __init__(self, security: Security) -> None:
        self.sasl = security.sasl
        self.tls: TlsClient | None = None
        if security.tls is not None:
            from ottla.client.security.tls import TlsClient

            self.tls = TlsClient(security.tls)

    def open(self, address: Address, deadline: Deadline) -> socket.socket:
        """Return a connected socket after its TLS handshake, if any. Errors say what to do."""
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
    except (OverflowError, UnicodeError):  # a broker may advertise an invalid address
        raise Unreachable(f"{address} is not a valid address") from None
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
