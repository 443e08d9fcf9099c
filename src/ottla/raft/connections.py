"""Which peers can be sent a request: one in flight each, and a pause after a failure."""

from __future__ import annotations

from ottla.raft.config import QuorumConfig


class Connections:
    """Requests in flight and pauses, by the id of the peer.

    A request without an answer for `request_timeout_ms` is given up; an answer that comes
    later is unknown and ignored.
    """

    __slots__ = ("_config", "_in_flight", "_last_request_id", "_paused_until", "_peers")

    def __init__(self, config: QuorumConfig) -> None:
        self._config = config
        self._last_request_id = 0
        self._peers: dict[int, int] = {}
        self._in_flight: dict[int, tuple[int, float]] = {}
        self._paused_until: dict[int, float] = {}

    def begin(self, peer_id: int, now_ms: float) -> int:
        """Return the id of a new request to this peer."""
        assert self.is_ready(peer_id, now_ms)
        self._forget(peer_id)
        self._last_request_id += 1
        self._peers[self._last_request_id] = peer_id
        expires_ms = now_ms + self._config.request_timeout_ms
        self._in_flight[peer_id] = (self._last_request_id, expires_ms)
        return self._last_request_id

    def finish(self, request_id: int) -> int | None:
        """Return the peer that answered, None if nobody waits for this answer."""
        peer_id = self._peers.get(request_id)
        if peer_id is not None:
            self._forget(peer_id)
        return peer_id

    def pause(self, peer_id: int, now_ms: float) -> None:
        """Send nothing to this peer for `retry_backoff_ms`."""
        self._paused_until[peer_id] = now_ms + self._config.retry_backoff_ms

    def is_ready(self, peer_id: int, now_ms: float) -> bool:
        return now_ms >= self.ready_at_ms(peer_id)

    def is_paused(self, peer_id: int, now_ms: float) -> bool:
        return now_ms < self._paused_until.get(peer_id, now_ms)

    def has_timed_out(self, peer_id: int, now_ms: float) -> bool:
        """Return True if a request was sent and its time to be answered is over."""
        return peer_id in self._in_flight and now_ms >= self._in_flight[peer_id][1]

    def is_waiting(self, now_ms: float) -> bool:
        """Return True if a request to any peer can still be answered."""
        return any(expires_ms > now_ms for _, expires_ms in self._in_flight.values())

    def ready_at_ms(self, peer_id: int) -> float:
        """Return from when on a request can be sent to this peer."""
        in_flight = self._in_flight.get(peer_id)
        return max(in_flight[1] if in_flight else 0, self._paused_until.get(peer_id, 0))

    def next_ready_at_ms(self) -> float:
        """Return when all requests in flight are answered or given up."""
        return max(expires_ms for _, expires_ms in self._in_flight.values())

    def reset(self) -> None:
        """Give up all requests and pauses. Ids are never used again."""
        self._peers.clear()
        self._in_flight.clear()
        self._paused_until.clear()

    def give_up(self, peer_id: int, now_ms: float) -> None:
        """Give up the request to this peer, and pause."""
        self._forget(peer_id)
        self.pause(peer_id, now_ms)

    def _forget(self, peer_id: int) -> None:
        if in_flight := self._in_flight.pop(peer_id, None):
            del self._peers[in_flight[0]]
