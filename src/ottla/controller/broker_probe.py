"""Asks a broker's address whether a process still listens there.

A refused connection is the proof that a process has ended: the operating system of a live machine
says so. No answer at all proves nothing, and neither does a connection that is closed again.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from ottla.metadata.image import BrokerImage
from ottla.ports import Network, Peer, Response
from ottla.wire.messages.api_versions import ApiVersionsRequest

TIMEOUT_MS = 1_000
MOST_ATTEMPTS = 4
_EMPTY_BODY = b""  # of ApiVersions version 0


class ProbeResult(Enum):
    LISTENS = "listens"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class BrokerProbe:
    """Connects to brokers, at most once at a time to each."""

    def __init__(self, network: Network, client_id: str) -> None:
        self._network = network
        self._client_id = client_id
        self._peers: dict[int, Peer] = {}

    def ask(self, broker: BrokerImage, done: Callable[[ProbeResult], None]) -> None:
        """Connect to a broker; `done` gets the result later.

        It is not called if an earlier question to this broker is still open.
        """
        broker_id = broker.broker_id
        if broker_id in self._peers or not broker.endpoints:
            return
        endpoint = broker.endpoints[0]
        peer = self._network.connect(endpoint.host, endpoint.port, self._client_id)
        self._peers[broker_id] = peer
        attempts = 0

        def ask() -> None:
            nonlocal attempts
            attempts += 1
            peer.send(ApiVersionsRequest.API_KEY, 0, _EMPTY_BODY, TIMEOUT_MS, answered)

        def answered(result: Response | OSError) -> None:
            if isinstance(result, ConnectionResetError) and attempts < MOST_ATTEMPTS:
                # The system closes the sockets of a process that has ended one after the other.
                ask()
                return
            del self._peers[broker_id]
            peer.close()
            done(_meaning(result))

        ask()


def _meaning(result: Response | OSError) -> ProbeResult:
    if isinstance(result, ConnectionRefusedError):
        return ProbeResult.REFUSED
    return ProbeResult.UNKNOWN if isinstance(result, OSError) else ProbeResult.LISTENS
