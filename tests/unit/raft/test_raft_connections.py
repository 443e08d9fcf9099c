"""One request in flight for each peer, timeouts and pauses."""

from __future__ import annotations

from ottla.raft.config import QuorumConfig
from ottla.raft.connections import Connections

CONFIG = QuorumConfig(request_timeout_ms=100, retry_backoff_ms=10)


def test_one_request_at_a_time() -> None:
    connections = Connections(CONFIG)
    request_id = connections.begin(1, 0)
    assert not connections.is_ready(1, 99)
    assert connections.is_ready(2, 0)
    assert connections.finish(request_id) == 1
    assert connections.is_ready(1, 1)


def test_an_answer_counts_once() -> None:
    connections = Connections(CONFIG)
    request_id = connections.begin(1, 0)
    assert connections.finish(request_id) == 1
    assert connections.finish(request_id) is None


def test_a_late_answer_is_unknown() -> None:
    connections = Connections(CONFIG)
    late = connections.begin(1, 0)
    assert connections.has_timed_out(1, 100)
    again = connections.begin(1, 100)
    assert connections.finish(late) is None
    assert connections.finish(again) == 1


def test_a_failure_pauses() -> None:
    connections = Connections(CONFIG)
    connections.finish(connections.begin(1, 0))
    connections.pause(1, 5)
    assert connections.is_paused(1, 14)
    assert connections.ready_at_ms(1) == 15
    assert connections.is_ready(1, 15)


def test_reset_forgets_requests_but_not_their_ids() -> None:
    connections = Connections(CONFIG)
    old = connections.begin(1, 0)
    connections.reset()
    assert connections.is_ready(1, 0)
    assert connections.begin(1, 0) != old
    assert connections.finish(old) is None
