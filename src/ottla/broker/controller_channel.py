"""Requests of a broker to the active controller, wherever it is.

The quorum knows who leads it. If nobody does, if the controller answers NOT_CONTROLLER or cannot be
reached, the request is sent again after a pause, until its deadline. Requests leave in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ottla.model.errors import ErrorCode
from ottla.ports import Peer, Response
from ottla.wire.codec import decoder, encoder
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.broker.node import Node

RETRY_MS: Final = 20
REQUEST_TIMEOUT_MS: Final = 5_000


class ControllerChannel:
    """The connection to the active controller."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._peer: Peer | None = None
        self._address: tuple[str, int] | None = None
        self.on_lost: Callable[[], None] = _nothing
        """Called when the connection to the active controller was lost."""

    def send(
        self,
        request: Message,
        version: int,
        response: type[Message],
        done: Callable[[Any], None],
        timeout_ms: float,
    ) -> None:
        """Send a request; `done` gets the response, or TimeoutError after `timeout_ms`.

        A response NOT_CONTROLLER is not handed over: the request is sent again.
        """
        body = encoder(type(request), version)(request)

        def answered(result: bytes | TimeoutError) -> None:
            if isinstance(result, TimeoutError):
                done(result)
                return
            message, _ = decoder(response, version)(result, 0, len(result))
            if getattr(message, "error_code", 0) == ErrorCode.NOT_CONTROLLER:
                self._retry(call)
            else:
                done(message)

        deadline_ms = self._node.monotonic_ms + timeout_ms
        call = _Call(request.API_KEY, version, body, answered, deadline_ms)
        self._try(call)

    def pass_on(
        self,
        api_key: int,
        version: int,
        body: bytes,
        done: Callable[[bytes | TimeoutError], None],
        timeout_ms: float,
    ) -> None:
        """Send the body of a request; `done` gets that of the response, or TimeoutError.

        It is sent again only if the connection is lost or another controller becomes active: one
        that takes long may have been carried out already.
        """
        deadline_ms = self._node.monotonic_ms + timeout_ms
        self._try(_Call(api_key, version, body, done, deadline_ms, timeout_ms))

    def _try(self, call: _Call) -> None:
        node = self._node
        now_ms = node.monotonic_ms
        if now_ms >= call.deadline_ms:
            call.done(TimeoutError("the active controller did not answer"))
            return
        peer = self._find()
        if peer is None:
            self._retry(call)
            return
        wait_ms = max(1, min(call.wait_ms, call.deadline_ms - now_ms))

        def answered(result: Response | OSError) -> None:
            if isinstance(result, OSError):
                self._retry(call)
                return
            call.done(bytes(result.view[result.start : result.end]))

        try:
            peer.send(call.api_key, call.version, call.body, wait_ms, answered)
        except BlockingIOError:
            self._retry(call)

    def _retry(self, call: _Call) -> None:
        node = self._node
        node.timers.at(node.clock.monotonic_ms() + RETRY_MS, lambda: self._try(call))

    def follow_leader(self) -> None:
        """Send what has no answer yet to the new active controller, if there is one."""
        self._find()

    def _find(self) -> Peer | None:
        """Return the connection to the active controller, None while it is not known."""
        member = self._node.controller.member
        leader = None if member is None else member.leader
        if leader is None or not leader[1]:
            return None
        address = leader[1][0].host, leader[1][0].port
        if address != self._address:
            self.close()
            self._address = address
            client_id = f"broker-{self._node.node_id}-to-controller"
            self._peer = self._node.ports.network.connect(*address, client_id)
            self._peer.on_lost = self._lost
        return self._peer

    def _lost(self) -> None:
        self.on_lost()

    def close(self) -> None:
        """Close the connection. Requests in flight are sent again."""
        peer, self._peer, self._address = self._peer, None, None
        if peer is not None:
            peer.close()


def _nothing() -> None:
    """Do nothing: nobody listens."""


class _Call:
    """A request on its way."""

    __slots__ = ("api_key", "body", "deadline_ms", "done", "version", "wait_ms")

    def __init__(
        self,
        api_key: int,
        version: int,
        body: bytes,
        done: Callable[[bytes | TimeoutError], None],
        deadline_ms: float,
        wait_ms: float = REQUEST_TIMEOUT_MS,
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.body = body
        self.done = done
        self.deadline_ms = deadline_ms
        self.wait_ms = wait_ms
        """How long to wait for an answer before it is sent again."""
