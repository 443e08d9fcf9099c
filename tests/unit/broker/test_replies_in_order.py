"""Replies leave in the order of their requests, in whatever order they are completed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import pytest

from ottla.broker.connection import MOST_REPLIES, Connection, Part
from ottla.broker.context import RequestContext
from ottla.log.segment.file_slice import FileSlice
from ottla.memory_files import MemoryFiles
from ottla.model.errors import ErrorCode
from ottla.replication.partition import Partition
from ottla.wire.api_table import ApiKey
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.broker import Broker, Client, partition_image, produce

Begin = Callable[[], RequestContext]


@pytest.fixture
def connection() -> Connection:
    return Connection("127.0.0.1", "PLAINTEXT")


@pytest.fixture
def begin(broker: Broker, connection: Connection) -> Begin:
    """Begin a request on the connection."""
    broker.connect().ask(ApiVersionsRequest(), 0)
    api = broker.node.pipeline.apis[ApiKey.API_VERSIONS]
    numbers = iter(range(1000))
    return lambda: RequestContext(api, connection, 0, next(numbers))


def file_part(content: bytes) -> FileSlice:
    files = MemoryFiles()
    files.make_dirs("/data")
    file = files.open("/data/f", create=True, writable=True)
    file.pwritev([content], 0)
    return FileSlice(file, 0, len(content))


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_waiting_replies_leave_in_order(
    connection: Connection, begin: Begin, order: tuple[int, ...]
) -> None:
    contexts = [begin() for _ in range(4)]
    for context in contexts:
        context.wait()
    for number in order:
        assert contexts[number].is_wanted
        contexts[number].complete(b"%d" % number)
        assert not contexts[number].is_wanted
    assert connection.out == [b"0", b"1", b"2", b"3"]
    assert not connection.pending


def test_immediate_waiting_and_parked_replies_leave_in_order(
    broker: Broker, connection: Connection, begin: Begin
) -> None:
    at_once = begin()
    at_once.complete(b"at once")
    assert connection.out == [b"at once"]
    waiting = begin()
    waiting.wait()
    behind = begin()
    behind.complete(b"behind")
    parked = begin()
    parked.defer()
    assert connection.out == [b"at once"]
    assert not connection.takes_requests
    parked.complete(b"parked")
    assert connection.takes_requests
    assert connection.out == [b"at once"]
    broker.node.ready.clear()
    waiting.complete(b"waiting")
    assert connection.out == [b"at once", b"waiting", b"behind", b"parked"]
    assert broker.node.ready == [connection]
    assert not connection.pending


def test_a_reply_of_several_parts_stays_together(connection: Connection, begin: Begin) -> None:
    first, second, third = begin(), begin(), begin()
    first.wait()
    second.wait()
    parts: list[Part] = [b"head", file_part(b"records"), b"tail"]
    second.complete_parts(parts)
    third.complete_parts([b"third"])
    assert connection.out == []
    first.complete(b"first")
    assert connection.out == [b"first", *parts, b"third"]


def test_a_reply_of_several_parts_ends_the_parking(connection: Connection, begin: Begin) -> None:
    parked = begin()
    parked.defer()
    parked.complete_parts([b"head", file_part(b"records")])
    assert connection.takes_requests
    assert not connection.pending
    assert len(connection.out) == 2


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("several_parts", [False, True])
def test_a_request_that_is_answered_twice_fails(
    begin: Begin, waits: bool, several_parts: bool
) -> None:
    context = begin()
    if waits:
        context.wait()
    parts: list[Part] = [b"one", file_part(b"two")] if several_parts else [b"one"]
    context.complete_parts(parts)
    with pytest.raises(AssertionError, match="twice"):
        context.complete(b"again")
    with pytest.raises(AssertionError, match="twice"):
        context.complete_parts([b"again", file_part(b"more")])


def test_a_reply_behind_others_that_is_answered_twice_fails(begin: Begin) -> None:
    begin().wait()
    context = begin()
    context.wait()
    context.complete(b"one")
    with pytest.raises(AssertionError, match="twice"):
        context.complete(b"two")


def test_replies_of_a_closed_connection_are_dropped(
    broker: Broker, connection: Connection, begin: Begin
) -> None:
    contexts = [begin() for _ in range(3)]
    for context in contexts:
        context.wait()
    contexts[1].complete(b"kept back")
    broker.node.ready.clear()
    broker.node.close_connection(connection)
    assert connection.closed
    assert not contexts[0].is_wanted
    contexts[0].complete(b"late")
    contexts[2].complete_parts([b"late", file_part(b"records")])
    assert connection.out == []
    assert broker.node.ready == []
    with pytest.raises(AssertionError, match="twice"):
        contexts[0].complete(b"later")


def test_a_parked_request_of_a_closed_connection_is_dropped(
    broker: Broker, connection: Connection, begin: Begin
) -> None:
    parked = begin().defer()
    broker.node.close_connection(connection)
    parked.complete(b"late")
    assert connection.out == []
    assert connection.parked is None


# A Produce whose follower is behind


@pytest.fixture
def partition(broker: Broker) -> Partition:
    """Return a partition that is led here, with a follower in the ISR."""
    return broker.topic_with("t", isr=(1, 2))


def commit(offset: int) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)],
    )


def code_of(response: object) -> int:
    code = response.responses[0].partition_responses[0].error_code  # type: ignore[attr-defined]
    assert isinstance(code, int)
    return code


def test_requests_behind_a_waiting_produce_are_handled(
    broker: Broker, partition: Partition
) -> None:
    broker.topic("other")
    client = broker.connect()
    client.ask(FindCoordinatorRequest(coordinator_keys=["g"]))
    broker.pass_time(0)
    waiting = client.send(produce("t"), 9)
    broker.node.settle()
    behind = [
        client.send(MetadataRequest(topics=None)),
        client.send(produce("other"), 9),
        client.send(produce("t", acks=1), 9),
        client.send(commit(5), 9),
    ]
    broker.node.settle()
    assert client.ids() == []
    assert partition.online_log().written_end == 2
    assert broker.node.topics.partition_named("other", 0).online_log().written_end == 1
    assert broker.node.topics.partition_named("other", 0).online_log().high_watermark == 1
    assert client.connection.takes_requests
    other_client = broker.connect()
    other_client.ask(produce("other"), 9)

    partition.as_leader().record_fetch(2, 1, broker.clock.monotonic_ms())
    replies = list(client.replies())
    assert [correlation_id for correlation_id, _ in replies] == [waiting, *behind]
    assert code_of(replies[0][1]) == ErrorCode.NONE
    assert replies[4][1].topics[0].partitions[0].error_code == 0  # type: ignore[attr-defined]


def test_a_produce_is_answered_when_the_follower_has_passed_it(
    broker: Broker, partition: Partition
) -> None:
    client = broker.connect()
    sent = [client.send(produce("t"), 9) for _ in range(3)]
    broker.node.settle()
    leader = partition.as_leader()
    leader.record_fetch(2, 0, 0.0)
    assert client.ids() == []
    leader.record_fetch(2, 2, 0.0)
    assert client.ids() == sent[:2]
    leader.record_fetch(2, 2, 0.0)
    assert client.ids() == []
    leader.record_fetch(2, 3, 0.0)
    assert client.ids() == sent[2:]


def test_a_produce_whose_time_is_over_is_refused_and_progress_is_harmless(
    broker: Broker, partition: Partition
) -> None:
    client = broker.connect()
    client.send(produce("t", timeout=500), 9)
    broker.node.settle()
    broker.pass_time(499)
    assert client.ids() == []
    broker.pass_time(1)
    ((_, response),) = client.replies()
    assert code_of(response) == ErrorCode.REQUEST_TIMED_OUT
    assert partition.online_log().log_end_offset == 1
    partition.as_leader().record_fetch(2, 1, broker.clock.monotonic_ms())
    assert partition.online_log().high_watermark == 1
    broker.pass_time(5000)
    assert client.ids() == []
    client.send(produce("t"), 9)
    broker.node.settle()
    partition.as_leader().record_fetch(2, 2, broker.clock.monotonic_ms())
    assert len(client.ids()) == 1


def test_progress_in_time_cancels_the_deadline(broker: Broker, partition: Partition) -> None:
    client = broker.connect()
    client.send(produce("t", timeout=500), 9)
    broker.node.settle()
    partition.as_leader().record_fetch(2, 1, broker.clock.monotonic_ms())
    ((_, response),) = client.replies()
    assert code_of(response) == ErrorCode.NONE
    broker.pass_time(10_000)
    assert client.ids() == []


def test_a_connection_that_closes_leaves_nothing_behind(
    broker: Broker, partition: Partition
) -> None:
    client = broker.connect()
    client.send(produce("t", timeout=500), 9)
    broker.node.settle()
    broker.node.close_connection(client.connection)
    broker.pass_time(10_000)
    partition.as_leader().record_fetch(2, 1, broker.clock.monotonic_ms())
    assert client.connection.out == []
    assert partition.online_log().high_watermark == 1


def test_a_leader_that_resigns_refuses_who_waits(broker: Broker, partition: Partition) -> None:
    client = broker.connect()
    client.send(produce("t"), 9)
    broker.node.settle()
    partition.take_role(partition_image(leader=2, isr=(1, 2), leader_epoch=2), 1)
    ((_, response),) = client.replies()
    assert code_of(response) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_leader_that_resigns_before_the_write_refuses_acks_all_only(
    broker: Broker, partition: Partition
) -> None:
    all_replicas, leader_only = broker.connect(), broker.connect()
    all_replicas.send(produce("t"), 9)
    leader_only.send(produce("t", acks=1), 9)
    partition.take_role(partition_image(leader=2, isr=(1, 2), leader_epoch=2), 1)
    broker.node.settle()
    ((_, response),) = all_replicas.replies()
    assert code_of(response) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    ((_, response),) = leader_only.replies()
    assert code_of(response) == ErrorCode.NONE
    assert partition.online_log().written_end == 2
    assert partition.online_log().high_watermark == 0


def test_a_connection_that_owes_many_replies_takes_no_more_requests(
    broker: Broker, partition: Partition
) -> None:
    client: Client = broker.connect()
    for _ in range(MOST_REPLIES):
        client.send(produce("t"), 9)
    broker.node.settle()
    assert not client.connection.takes_requests
    partition.as_leader().record_fetch(2, 1, 0.0)
    assert len(client.connection.out) == 1
    assert client.connection.takes_requests
    partition.as_leader().record_fetch(2, MOST_REPLIES, 0.0)
    assert len(client.connection.out) == MOST_REPLIES
    assert not client.connection.takes_requests, "replies that are not sent count as well"
    assert client.ids() == list(range(1, MOST_REPLIES + 1))
    assert client.connection.takes_requests
