"""Sends Raft's requests to other nodes: one connection to each, opened when it is needed."""

from __future__ import annotations

from collections.abc import Callable

from ottla.controller.quorum.requests_to_wire import RequestTranslator, Sent
from ottla.model.errors import ErrorCode
from ottla.ports import Network, Peer, Response
from ottla.raft.effects import Send
from ottla.raft.messages import AnyResponse
from ottla.raft.voters import Endpoint
from ottla.wire.codec import decoder, encoder

LONGEST_BACKOFF_MS = 100
"""An election does not wait longer for the next look whether a node is back."""


class QuorumPeers:
    """The other members of the quorum, by address."""

    def __init__(
        self,
        network: Network,
        translator: RequestTranslator,
        client_id: str,
        listener: str,
        timeout_ms: float,
        on_other_cluster: Callable[[int, Endpoint], None],
    ) -> None:
        """Connect through `network`. `on_other_cluster` gets peers of another cluster."""
        self._network = network
        self._translator = translator
        self._client_id = client_id
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._on_other_cluster = on_other_cluster
        self._peers: dict[tuple[str, int], Peer] = {}

    def send(self, send: Send, done: Callable[[AnyResponse | OSError], None]) -> None:
        """Send a request; `done` gets the answer, or why there is none."""
        sent = self._translator.translate(send.message)
        body = encoder(type(sent.request), sent.version)(sent.request)
        endpoint = self._endpoint(send.peer.endpoints)
        if endpoint is None:
            done(OSError(f"node {send.peer.id} has no address on {self._listener}"))
            return

        def answered(result: Response | OSError) -> None:
            understood = _understood(sent, result)
            if isinstance(understood, _OtherCluster):
                self._on_other_cluster(send.peer.id, endpoint)
            done(understood)

        try:
            self._peer(endpoint).send(
                sent.request.API_KEY, sent.version, body, self._timeout_ms, answered
            )
        except BlockingIOError as error:
            done(error)

    def close(self) -> None:
        """Close all connections."""
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    def _endpoint(self, endpoints: tuple[Endpoint, ...]) -> Endpoint | None:
        """Return the address on the listener of controllers, else the first one."""
        named = [each for each in endpoints if each.listener == self._listener]
        return next(iter([*named, *endpoints]), None)

    def _peer(self, endpoint: Endpoint) -> Peer:
        address = endpoint.host, endpoint.port
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = self._network.connect(
                *address, self._client_id, LONGEST_BACKOFF_MS
            )
        return peer


class _OtherCluster(OSError):
    """A peer refuses a request because it belongs to another cluster."""


def _understood(sent: Sent, result: Response | OSError) -> AnyResponse | OSError:
    if isinstance(result, OSError):
        return result
    body = result.view[result.start : result.end].toreadonly()
    message, _ = decoder(sent.response, sent.version)(body, 0, len(body))
    if getattr(message, "error_code", 0) == ErrorCode.INCONSISTENT_CLUSTER_ID:
        return _OtherCluster("the node belongs to another cluster")
    return sent.understand(message)
