"""Framing, settling and flow control, with streams in memory."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ottla.broker.connection import MOST_REPLIES
from ottla.network.engine import MOST_CLOSED
from ottla.network.flow_control import STALL_CHECK_MS, STALLED_MS
from ottla.network.receiver import CHUNK_BYTES, MOST_RECEIVED_BYTES
from ottla.network.stream import HANG_UP, READ, WRITE
from ottla.wire.discard import ONE_FRAME_BYTES
from tests.support.network import LARGEST, FakeStream, World, framed

REQUEST = b"a request"


def test_nothing_is_sent_before_the_node_has_settled() -> None:
    world = World()
    stream, channel = world.accept()
    world.receive(channel, stream, framed(REQUEST, REQUEST))
    assert world.node.handled == [REQUEST, REQUEST]
    assert (stream.sent, world.node.settlings) == (b"", 0)
    world.engine.settle()
    assert stream.sent == framed(REQUEST, REQUEST)


def test_what_is_put_off_is_done_when_the_replies_are_sent() -> None:
    world = World()
    stream, channel = world.accept()
    sent_before: list[bytes] = []

    def reply_later() -> None:
        sent_before.append(bytes(stream.sent))
        channel.connection.out.append(b"later")
        world.node.ready.append(channel.connection)

    world.node.put_off.append(reply_later)
    world.receive(channel, stream, framed(REQUEST))
    world.engine.settle()
    assert sent_before == [framed(REQUEST)]
    assert stream.sent == framed(REQUEST) + b"later"
    world.node.put_off.append(reply_later)  # with nothing to send before
    world.engine.settle()
    assert stream.sent == framed(REQUEST) + b"laterlater"


@pytest.mark.parametrize(
    ("size", "piece"),
    [
        *((size, piece) for size in (8, 300) for piece in (3, 4, 5, 65_536)),
        *((size, piece) for size in (70_000, 300_000, LARGEST) for piece in (65_536, 10**7)),
    ],
)
def test_frames_in_pieces_are_handled_once_they_are_whole(size: int, piece: int) -> None:
    world = World()
    stream, channel = world.accept()
    bodies = [bytes([number]) * size for number in range(3)]
    data = framed(*bodies)
    for start in range(0, len(data), piece):
        stream.inbox += data[start : start + piece]
        while stream.inbox:
            world.engine.receive(channel)
            world.engine.settle()
    assert world.node.handled == bodies
    assert stream.sent == data
    assert world.buffers.reserved_bytes == 0


def test_a_wake_up_receives_and_frees_only_a_part_of_a_large_frame() -> None:
    world = World()
    stream, channel = world.accept()
    channel.largest_frame = 10**8
    body = bytes(range(256)) * 80_000
    stream.inbox += framed(body)
    filled, buffers = 0, [bytearray()]
    while not world.node.handled:
        world.engine.receive(channel)
        world.engine.settle()
        assert channel.filled - filled <= CHUNK_BYTES + MOST_RECEIVED_BYTES
        filled = channel.filled
        if channel.buffer is not None and channel.buffer is not buffers[-1]:
            buffers.append(channel.buffer)
    assert world.node.handled == [body]
    assert [len(each) for each in buffers if len(each) > ONE_FRAME_BYTES] == [len(body) + 4]
    sizes = [len(buffers[-1])]
    while len(buffers[-1]) > ONE_FRAME_BYTES:
        world.node.pass_ms(1)
        sizes.append(len(buffers[-1]))
    assert all(2 * after > before - 4 for before, after in pairwise(sizes))


@pytest.mark.parametrize("size", [-1, 0, 7, LARGEST + 1, 2**31 - 1])
def test_a_length_that_no_request_has_closes_after_the_replies_that_are_owed(size: int) -> None:
    world = World()
    stream, channel = world.accept()
    bad = size.to_bytes(4, signed=True)
    world.receive(channel, stream, framed(REQUEST) + bad + bytes(100))
    world.engine.settle()
    assert stream.sent == framed(REQUEST)
    assert stream.closed
    assert world.node.closed == [channel.connection]
    assert f"a frame of {size} bytes" in world.node.reports[0]


def test_what_is_no_request_closes_its_connection_alone() -> None:
    world = World()
    (bad, bad_channel), (good, good_channel) = world.accept(), world.accept()
    world.receive(bad_channel, bad, framed(REQUEST, b"garbage in it", REQUEST))
    world.receive(good_channel, good, framed(REQUEST))
    world.engine.settle()
    assert (bad.sent, bad.closed) == (framed(REQUEST), True)
    assert (good.sent, good.closed) == (framed(REQUEST), False)


@pytest.mark.interpreted
def test_a_reply_that_is_owed_is_waited_for_before_a_connection_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    stream, channel = world.accept()
    owed = [channel]
    monkeypatch.setattr("ottla.network.engine.is_waiting", lambda channel: channel in owed)
    world.receive(channel, stream, framed(b"garbage in it", REQUEST))
    world.engine.settle()
    world.receive(channel, stream, framed(REQUEST))
    assert not stream.closed
    assert world.node.handled == []
    owed.clear()
    channel.connection.out.append(framed(b"the reply"))
    world.node.ready.append(channel.connection)
    world.engine.settle()
    assert (stream.sent, stream.closed) == (framed(b"the reply"), True)


def test_an_unexpected_error_leaves_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()

    def broken(*args: object) -> None:
        raise AssertionError("a broken invariant")

    monkeypatch.setattr(world.node, "handle", broken)
    stream, channel = world.accept()
    with pytest.raises(AssertionError, match="a broken invariant"):
        world.receive(channel, stream, framed(REQUEST))


def test_a_peer_that_takes_nothing_is_not_read_from() -> None:
    world = World()
    stream, channel = world.accept()
    stream.room = 5
    world.receive(channel, stream, framed(REQUEST))
    world.engine.settle()
    assert (stream.sent, world.interest(channel)) == (framed(REQUEST)[:5], WRITE)
    stream.room = -1
    world.engine.send(channel)
    assert (stream.sent, world.interest(channel)) == (framed(REQUEST), READ)


def test_replies_are_bounded_and_the_rest_is_handled_when_they_are_sent() -> None:
    world = World()
    stream, channel = world.accept()
    bodies = [b"request %03d" % number for number in range(MOST_REPLIES + 5)]
    stream.room = 0
    world.receive(channel, stream, framed(*bodies))
    world.engine.settle()
    assert world.node.handled == bodies[:MOST_REPLIES]
    stream.room = -1
    world.engine.send(channel)
    world.engine.settle()
    assert world.node.handled == bodies
    assert stream.sent == framed(*bodies)


def test_whole_frames_that_wait_for_memory_are_handled_later() -> None:
    """They are kept because of too many replies, and there is no memory to keep them."""
    world = World(queued_max_bytes=1000)
    stream, channel = world.accept()
    bodies = [bytes([number]) * 1500 for number in range(MOST_REPLIES + 60)]
    world.receive(channel, stream, framed(*bodies))
    assert channel.starved
    assert world.interest(channel) == HANG_UP
    for _ in range(3):
        world.engine.settle()
        is_done = len(stream.sent) == len(framed(*bodies))
        assert world.engine.has_work or is_done, "nothing else would wake the loop up"
    assert world.node.handled == bodies
    assert stream.sent == framed(*bodies)
    assert (channel.starved, world.interest(channel)) == (False, READ)
    assert world.buffers.reserved_bytes == 0


def test_who_holds_memory_that_others_wait_for_and_sends_nothing_is_closed() -> None:
    world = World(queued_max_bytes=400_000)
    (slow, slow_channel), (other, other_channel) = world.accept(), world.accept()
    world.receive(slow_channel, slow, framed(bytes(300_000))[:200_000])
    world.receive(other_channel, other, framed(bytes(250_000))[:200_000])
    world.engine.settle()
    assert other_channel.starved
    for _ in range(int(STALLED_MS // STALL_CHECK_MS) + 1):
        world.node.pass_ms(STALL_CHECK_MS)
    assert (slow.closed, other.closed) == (True, False)
    world.receive(other_channel, other, framed(bytes(250_000))[200_000:])
    world.engine.settle()
    assert len(other.sent) == 250_004


def test_idle_connections_are_closed_after_a_while() -> None:
    world = World(max_idle_ms=1000)
    (idle, _), (busy, busy_channel) = world.accept(), world.accept()
    world.engine.watch_idle()
    for _ in range(12):
        world.node.pass_ms(100)
        world.receive(busy_channel, busy, framed(REQUEST))
        world.engine.settle()
    assert (idle.closed, busy.closed) == (True, False)


@pytest.mark.parametrize("how", ["eof", "broken"])
def test_a_peer_that_is_gone_is_let_go(how: str) -> None:
    world = World()
    stream, channel = world.accept()
    world.receive(channel, stream, framed(REQUEST)[:7])
    stream.eof, stream.is_broken = how == "eof", how == "broken"
    world.engine.receive(channel)
    assert stream.closed
    assert world.poller.interests == {}
    assert world.buffers.reserved_bytes == 0


def test_a_connection_over_the_limit_is_closed_at_once() -> None:
    world = World()
    for _ in range(10):
        world.accept()
    stream = FakeStream()
    assert world.engine.accept(stream, "host", "PLAINTEXT") is None
    assert stream.closed
    assert "max.connections=10" in world.node.reports[0]


def test_many_frames_of_one_wake_up_are_handled_while_the_arena_grows() -> None:
    world = World()
    bodies = [bytes([number]) * 100_000 for number in range(10)]
    connections = [world.accept() for _ in bodies]
    for (stream, channel), body in zip(connections, bodies, strict=True):
        world.receive(channel, stream, framed(body))
    assert world.node.handled == bodies
    world.engine.settle()
    assert [stream.sent for stream, _ in connections] == [framed(body) for body in bodies]


def test_a_wake_up_closes_only_some_of_the_idle_connections() -> None:
    world = World(max_idle_ms=1000, most_connections=3 * MOST_CLOSED)
    streams = [world.accept()[0] for _ in range(2 * MOST_CLOSED + 10)]
    world.engine.watch_idle()

    def closed() -> int:
        return sum(stream.closed for stream in streams)

    while not closed():
        world.node.pass_ms(100)
    assert closed() == MOST_CLOSED
    world.node.pass_ms(1)
    assert closed() == 2 * MOST_CLOSED
    world.node.pass_ms(1)
    assert closed() == len(streams)
