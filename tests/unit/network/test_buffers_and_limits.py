"""Bounds of the edge: bytes being received, connections in all and per address."""

from __future__ import annotations

from ottla.network.buffers import RequestBuffers
from ottla.network.limits import ConnectionLimits


def test_reservations_stop_at_the_limit() -> None:
    buffers = RequestBuffers(100)
    assert buffers.reserve(60)
    assert buffers.reserve(40)
    assert not buffers.reserve(1)
    buffers.exceed(500)
    assert buffers.reserve(0)
    buffers.unreserve(560)
    assert not buffers.reserve(61)
    assert buffers.reserve(60)


def test_buffers_are_reused_by_size_class() -> None:
    buffers = RequestBuffers(100)
    first = buffers.take(5000)
    buffers.give(first)
    assert buffers.take(8192) is first
    assert buffers.take(5000) is not first


def test_kept_buffers_are_bounded() -> None:
    buffers = RequestBuffers(100)
    taken = [buffers.take(8 * 1024 * 1024) for _ in range(4)]
    for buffer in taken:
        buffers.give(buffer)
    again = [buffers.take(8 * 1024 * 1024) for _ in range(4)]
    assert sum(any(buffer is old for old in taken) for buffer in again) == 2


def test_connections_are_counted_in_all_and_per_address() -> None:
    limits = ConnectionLimits(3, 2, {"10.0.0.9": 0}, 1000)
    assert limits.admit("a") is None
    assert limits.admit("a") is None
    assert "max.connections.per.ip is 2" in str(limits.admit("a"))
    assert "max.connections.per.ip is 0" in str(limits.admit("10.0.0.9"))
    assert limits.admit("b") is None
    assert "max.connections=3" in str(limits.admit("c"))
    limits.leave("a")
    assert limits.admit("c") is None
