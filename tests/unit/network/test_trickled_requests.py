"""Requests that arrive byte by byte: they hold what has arrived, and not for ever."""

from __future__ import annotations

from ottla.network.buffers import LITTLE_BYTES, SMALLEST_BYTES, RequestBuffers
from ottla.network.flow_control import STALL_CHECK_MS, STALLED_MS
from ottla.network.receiver import AHEAD, LITTLE_CHUNK_BYTES
from tests.support.network import LARGEST, World, framed

REQUEST = b"a request"


def test_a_length_gets_memory_as_bytes_arrive() -> None:
    world = World()
    stream, channel = world.accept()
    data = framed(bytes(LARGEST))
    for position in range(40):
        world.receive(channel, stream, data[position : position + 1])
        world.engine.settle()
        assert world.buffers.reserved_bytes <= SMALLEST_BYTES
    for position in range(40, len(data), 10_000):
        world.receive(channel, stream, data[position : position + 10_000])
        world.engine.settle()
        assert world.buffers.reserved_bytes <= max(SMALLEST_BYTES, AHEAD * (position + 10_000))
    while stream.inbox:
        world.receive(channel, stream)
        world.engine.settle()
    assert stream.sent == data
    assert world.buffers.reserved_bytes == 0


def test_whoever_sends_single_bytes_is_idle() -> None:
    world = World(max_idle_ms=1000)
    (slow, slow_channel), (busy, busy_channel) = world.accept(), world.accept()
    world.engine.watch_idle()
    data = framed(bytes(LARGEST))
    for position in range(24):
        world.node.pass_ms(100)
        if not slow.closed:
            world.receive(slow_channel, slow, data[position : position + 1])
        world.receive(busy_channel, busy, framed(REQUEST))
        world.engine.settle()
    assert (slow.closed, busy.closed) == (True, False)
    assert world.buffers.reserved_bytes == 0


def test_a_large_request_over_a_slow_line_is_not_idle() -> None:
    world = World(max_idle_ms=1000)
    stream, channel = world.accept()
    world.engine.watch_idle()
    data = framed(bytes(LARGEST))
    step = LITTLE_BYTES // 5
    for position in range(0, len(data), step):
        world.node.pass_ms(100)
        stream.inbox += data[position : position + step]
        while stream.inbox:
            world.receive(channel, stream)
            world.engine.settle()
    assert stream.sent == data


def test_single_bytes_do_not_keep_memory_that_others_wait_for() -> None:
    world = World(queued_max_bytes=400_000)
    (slow, slow_channel), (other, other_channel) = world.accept(), world.accept()
    world.receive(slow_channel, slow, framed(bytes(300_000))[:200_000])
    world.receive(other_channel, other, framed(bytes(250_000))[:200_000])
    world.engine.settle()
    assert other_channel.starved
    for _ in range(int(STALLED_MS // STALL_CHECK_MS) + 1):
        world.node.pass_ms(STALL_CHECK_MS)
        if not slow.closed:
            world.receive(slow_channel, slow, b"\0")
            world.engine.settle()
    assert (slow.closed, other.closed) == (True, False)


def test_frames_that_wait_for_their_turn_are_not_closed_for_the_memory_they_hold() -> None:
    world = World(queued_max_bytes=400_000)
    (waiting, waiting_channel), (other, other_channel) = world.accept(), world.accept()
    waiting.room = 0  # so the reply of the first stays, and the second waits for it
    world.receive(waiting_channel, waiting, framed(bytes(17_000), bytes(200_000)))
    world.receive(other_channel, other, framed(bytes(LARGEST))[:200_000])
    world.engine.settle()
    assert other_channel.starved
    for _ in range(int(STALLED_MS // STALL_CHECK_MS) + 1):
        world.node.pass_ms(STALL_CHECK_MS)
    assert not waiting.closed


def test_while_somebody_waits_for_memory_little_is_received_at_a_time() -> None:
    world = World(queued_max_bytes=300_000)
    (holder, holder_channel), (starved, starved_channel), (third, third_channel) = (
        world.accept() for _ in range(3)
    )
    world.receive(holder_channel, holder, framed(bytes(300_000))[:200_000])
    world.receive(starved_channel, starved, framed(bytes(250_000))[:200_000])
    assert starved_channel.starved
    third.inbox += framed(bytes(250_000))
    world.engine.receive(third_channel)
    assert third_channel.filled <= LITTLE_CHUNK_BYTES
    world.engine.close(holder_channel)
    world.engine.settle()
    starved.inbox += framed(bytes(250_000))[200_000:]
    for _ in range(100):
        for channel in (starved_channel, third_channel):
            if not channel.starved:
                world.engine.receive(channel)
        world.engine.settle()
    assert len(third.sent) == 250_004


def test_a_small_frame_may_exceed_the_limit_by_a_quarter() -> None:
    buffers = RequestBuffers(100)
    assert buffers.reserve(100)
    assert not buffers.reserve(1)
    assert buffers.reserve(25, is_little=True)
    assert not buffers.reserve(1, is_little=True)
