"""Bounds of the edge: bytes being received, connections in all and per address."""

from __future__ import annotations

from ottla.network.buffers import RequestBuffers, next_size
from ottla.network.limits import ConnectionLimits
from ottla.wire.discard import ONE_FRAME_BYTES


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
    taken = [buffers.take(4 * 1024 * 1024) for _ in range(8)]
    for buffer in taken:
        buffers.give(buffer)
    again = [buffers.take(4 * 1024 * 1024) for _ in range(8)]
    assert sum(any(buffer is old for old in taken) for buffer in again) == 4


def test_a_large_buffer_serves_one_frame() -> None:
    buffers = RequestBuffers(100)
    buffer = buffers.take(ONE_FRAME_BYTES + 1)
    assert len(buffer) == ONE_FRAME_BYTES + 1
    buffers.give(buffer)
    assert not buffers.has_spare(ONE_FRAME_BYTES + 1)
    assert buffers.take(ONE_FRAME_BYTES + 1) is not buffer


def test_little_is_copied_while_a_buffer_grows() -> None:
    for need in (5000, ONE_FRAME_BYTES - 1, ONE_FRAME_BYTES + 1, 100_000_000):
        sizes = [4096]
        while sizes[-1] < need:
            sizes.append(next_size(sizes[-1], need))
        assert sizes[-1] == need
        assert sum(sizes[:-1]) <= 2 * ONE_FRAME_BYTES


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
