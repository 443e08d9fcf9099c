"""What slow readers hold is bounded in bytes, for one connection and for all together."""

from __future__ import annotations

import pytest

from ottla.broker.connection import LARGE_REPLY_BYTES, MOST_REPLIES, Part
from ottla.log.segment.file_slice import FileSlice
from ottla.memory_files import MemoryFiles
from ottla.network.channel import SEND_BYTES
from ottla.network.engine import MOST_ROUNDS
from ottla.network.receiver import MOST_LARGE_BYTES
from ottla.network.stream import READ, WRITE
from tests.support.network import World, framed

SMALL = b"a small request"
LARGE = bytes(LARGE_REPLY_BYTES)


def test_a_large_reply_is_the_last_until_it_is_sent() -> None:
    world = World()
    stream, channel = world.accept()
    stream.room = 100
    world.receive(channel, stream, framed(SMALL, LARGE, LARGE, SMALL))
    world.engine.settle()
    assert world.node.handled == [SMALL, LARGE]
    assert world.interest(channel) == WRITE
    stream.room = -1
    world.engine.send(channel)
    world.engine.settle()
    assert world.node.handled == [SMALL, LARGE, LARGE, SMALL]
    assert stream.sent == framed(SMALL, LARGE, LARGE, SMALL)
    assert world.interest(channel) == READ
    assert world.engine.slow_readers.held_bytes == 0


def test_a_connection_holds_no_more_than_small_replies_and_one_large_one() -> None:
    world = World()
    stream, channel = world.accept()
    stream.room = 0
    body = bytes(LARGE_REPLY_BYTES - 4)
    world.receive(channel, stream, framed(*[body] * 12, LARGE, LARGE))
    world.engine.settle()
    assert channel.held() == (12 * LARGE_REPLY_BYTES + len(LARGE) + 4, 0)
    assert world.engine.slow_readers.held_bytes == channel.held()[0]


def test_a_reply_counts_until_all_of_it_is_sent() -> None:
    world = World()
    stream, channel = world.accept()
    stream.room = len(LARGE)
    world.receive(channel, stream, framed(LARGE))
    world.engine.settle()
    assert world.engine.slow_readers.held_bytes == len(LARGE) + 4


def test_all_together_hold_a_bounded_sum_and_the_one_that_is_slow_for_longest_is_closed() -> None:
    world = World(most_unsent_bytes=3 * len(LARGE))
    readers = [world.accept() for _ in range(6)]
    quick, quick_channel = world.accept()
    for stream, channel in readers:
        stream.room = 10
        world.receive(channel, stream, framed(LARGE))
        world.engine.settle()
        assert world.engine.slow_readers.held_bytes <= 3 * len(LARGE)
        world.receive(quick_channel, quick, framed(LARGE))
        world.engine.settle()
    assert quick.sent == framed(*[LARGE] * 6)
    assert [stream.closed for stream, _ in readers] == [True] * 4 + [False] * 2
    assert "does not take its replies" in world.node.reports[0]


def test_a_reader_that_takes_its_replies_is_not_slow_for_longest() -> None:
    world = World(most_unsent_bytes=2 * len(LARGE) + 100)
    (first, first_channel), (second, second_channel), (third, third_channel) = (
        world.accept() for _ in range(3)
    )
    for stream, channel in ((first, first_channel), (second, second_channel)):
        stream.room = 10
        world.receive(channel, stream, framed(LARGE, LARGE))
        world.engine.settle()
    first.room = len(LARGE)  # takes the rest of its first reply, and is slow again
    world.engine.send(first_channel)
    world.engine.settle()
    third.room = 10
    world.receive(third_channel, third, framed(LARGE))
    world.engine.settle()
    assert (first.closed, second.closed, third.closed) == (False, True, False)


def test_ranges_of_files_count_as_well() -> None:
    world = World(most_unsent_ranges=10)
    file = MemoryFiles().open("/records", create=True)
    file.pwritev([bytes(1000)], 0)
    readers = [world.accept() for _ in range(3)]
    for stream, channel in readers:
        stream.room = 10
        channel.connection.out += [FileSlice(file, 0, 1000) for _ in range(5)]
        world.node.ready.append(channel.connection)
        world.engine.settle()
        assert world.engine.slow_readers.held_ranges <= 10
    assert [stream.closed for stream, _ in readers] == [True, False, False]


@pytest.mark.parametrize(
    ("others_wait", "most_bytes", "expected_sends"),
    [(True, 2 * SEND_BYTES, 11), (False, 5_000_000, 2)],
)
def test_one_connection_sends_a_bounded_number_of_bytes_at_a_time(
    others_wait: bool, most_bytes: int, expected_sends: int
) -> None:
    world = World()
    world.poller.events = others_wait
    stream, channel = world.accept()
    file = MemoryFiles().open("/records", create=True)
    file.pwritev([bytes(2 * SEND_BYTES)], 0)
    parts: list[Part] = [
        b"head",
        FileSlice(file, 0, 2 * SEND_BYTES),
        *[bytes(100_000)] * 50,
        b"tail",
    ]
    channel.connection.out += parts
    total = channel.unsent_bytes
    sends = 0
    while channel.unsent_bytes:
        before = len(stream.sent)
        world.engine.send(channel)
        assert 0 < len(stream.sent) - before < most_bytes
        assert world.interest(channel) == (WRITE if channel.unsent_bytes else READ)
        sends += 1
    assert (len(stream.sent), sends) == (total, expected_sends)
    assert channel not in world.engine.slow_readers


def test_large_replies_of_two_connections_take_turns() -> None:
    world = World()
    readers = [world.accept() for _ in range(2)]
    file = MemoryFiles().open("/records", create=True)
    file.pwritev([bytes(4 * SEND_BYTES)], 0)
    for _, channel in readers:
        channel.connection.out.append(FileSlice(file, 0, 4 * SEND_BYTES))
        world.node.ready.append(channel.connection)
    world.engine.settle()
    assert [len(stream.sent) for stream, _ in readers] == [SEND_BYTES, SEND_BYTES]
    assert [world.interest(channel) for _, channel in readers] == [WRITE, WRITE]


def test_a_wake_up_takes_a_bounded_number_of_requests_of_one_connection() -> None:
    world = World()
    (busy, busy_channel), (other, other_channel) = world.accept(), world.accept()
    bodies = [b"request %06d" % number for number in range(20 * MOST_REPLIES)]
    world.receive(busy_channel, busy, framed(*bodies))
    world.engine.settle()
    assert len(world.node.handled) == (MOST_ROUNDS) * MOST_REPLIES
    assert world.engine.has_work
    world.receive(other_channel, other, framed(SMALL))
    world.engine.resume()
    world.engine.settle()
    assert other.sent == framed(SMALL)
    while world.engine.has_work:
        world.engine.resume()
        world.engine.settle()
    assert busy.sent == framed(*bodies)


def test_more_may_arrive_while_requests_wait_for_the_next_wake_up() -> None:
    world = World()
    stream, channel = world.accept()
    bodies = [b"request %06d" % number for number in range(20 * MOST_REPLIES)]
    world.receive(channel, stream, framed(*bodies[:-1]))
    world.engine.settle()
    assert world.engine.has_work
    for _ in range(20):
        world.receive(channel, stream, b"")
        world.engine.resume()
        world.engine.settle()
    world.receive(channel, stream, framed(bodies[-1]))
    world.engine.settle()
    assert world.node.handled == bodies


def test_large_replies_of_many_connections_are_sent_before_more_are_made() -> None:
    world = World()
    body = bytes(200_000)
    readers = [world.accept() for _ in range(8)]
    for _ in range(2 * MOST_LARGE_BYTES // (len(readers) * len(body))):
        for stream, channel in readers:
            world.receive(channel, stream, framed(body))
    unsent = sum(channel.unsent_bytes for _, channel in readers)
    assert unsent <= MOST_LARGE_BYTES + len(body) + 4
