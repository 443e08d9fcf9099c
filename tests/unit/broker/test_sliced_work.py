"""Long work goes on in later wake-ups, and others are served in between."""

from __future__ import annotations

import pytest

from ottla.broker import pipeline
from ottla.model.errors import ErrorCode
from ottla.model.steps import Steps, Wait
from ottla.wire.codec import encoder
from ottla.wire.header import request_header
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.support.broker import Broker, Client, produce
from tests.support.request_cost import TickingClock


def work(done: list[str], name: str, steps: int) -> Steps[None]:
    for number in range(steps):
        done.append(f"{name}{number}")
        yield


@pytest.fixture
def sliced() -> Broker:
    """Return a broker for which every step is as long as a slice."""
    broker = Broker()
    broker.node.sliced_work.slice_ms = 0
    return broker


def pass_wake_ups(broker: Broker, count: int = 1000) -> None:
    for _ in range(count):
        broker.pass_time(1)


def test_short_work_is_done_at_once(broker: Broker) -> None:
    done: list[str] = []
    assert broker.node.sliced_work.run(work(done, "a", 3))
    assert done == ["a0", "a1", "a2"]


def test_work_comes_first_after_it_has_waited(sliced: Broker) -> None:
    done: list[str] = []
    wait = Wait()

    def waiting() -> Steps[None]:
        done.append("begins")
        yield wait
        done.append("goes on")
        yield
        done.append("ends")

    run = sliced.node.sliced_work.run
    assert not run(waiting())
    for name in "abc":
        assert not run(work(done, name, 3))
    pass_wake_ups(sliced, 3)
    assert done == ["begins", "a0", "b0"]
    wait.end()
    pass_wake_ups(sliced, 4)
    assert done[3:] == ["goes on", "c0", "a1", "b1"]
    pass_wake_ups(sliced)
    assert done.count("ends") == 1
    assert len(done) == 3 + 3 * 3


def test_work_that_has_waited_goes_on_when_the_replies_are_sent(broker: Broker) -> None:
    done: list[str] = []
    wait = Wait()

    def waiting() -> Steps[None]:
        yield wait
        done.append("goes on")

    node = broker.node
    assert not node.sliced_work.run(waiting())
    wait.end()
    node.settle_replies()
    assert done == []
    node.settle()
    assert done == ["goes on"]


def test_work_takes_turns(sliced: Broker) -> None:
    done: list[str] = []
    run = sliced.node.sliced_work.run
    assert not run(work(done, "a", 3))
    assert not run(work(done, "b", 2))
    assert done == []
    pass_wake_ups(sliced, 1)
    assert done == ["a0"]
    pass_wake_ups(sliced)
    assert done == ["a0", "b0", "a1", "b1", "a2"]
    assert not len(sliced.node.sliced_work)


def test_a_slice_ends_when_its_time_is_over() -> None:
    broker = Broker(TickingClock())
    done: list[str] = []
    assert not broker.node.sliced_work.run(work(done, "a", 100))
    first = len(done)
    assert 10 < first < 30
    assert not broker.node.sliced_work.run(work(done, "b", 100)), "the wake-up has no time left"
    assert len(done) == first
    broker.pass_time(1)
    assert first + 10 < len(done) < first + 30


def test_work_that_is_not_wanted_is_dropped(sliced: Broker) -> None:
    done: list[str] = []
    is_wanted = True
    sliced.node.sliced_work.run(work(done, "a", 100), lambda: is_wanted)
    pass_wake_ups(sliced, 3)
    is_wanted = False
    pass_wake_ups(sliced, 3)
    assert done == ["a0", "a1", "a2"]
    assert not len(sliced.node.sliced_work)


def metadata(*names: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])


def test_requests_behind_wait_and_those_of_others_do_not(sliced: Broker) -> None:
    client, other = sliced.connect(), sliced.connect()
    client.send(metadata("t"), 12)
    sliced.node.settle()
    assert not client.connection.takes_requests
    assert other.ask(DescribeClusterRequest(), 1).error_code == ErrorCode.NONE
    pass_wake_ups(sliced)
    assert client.connection.takes_requests
    assert client.ids() == [1]


def test_the_work_of_a_closed_connection_ends(sliced: Broker) -> None:
    client = sliced.connect()
    client.send(metadata("t"), 12)
    sliced.node.close_connection(client.connection)
    pass_wake_ups(sliced, 2)
    assert not len(sliced.node.sliced_work)
    assert sliced.node.image.topics == {}


def test_a_partition_in_metadata_has_its_log(sliced: Broker) -> None:
    admin, client = sliced.connect(), sliced.connect()
    topic = CreatableTopic(name="t", num_partitions=20, replication_factor=1)
    admin.send(CreateTopicsRequest(topics=[topic]), 7)
    seen = 0
    while not admin.connection.out:
        sliced.pass_time(1)
        for index in range(seen, len(getattr(sliced.node.image.topics.get("t"), "partitions", ()))):
            response = client.ask(produce(index=index), 12)
            assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            seen += 1
    assert seen == 20


def test_decisions_see_those_before_them(sliced: Broker) -> None:
    """Two requests for one name: one of them creates it, however their steps are mixed."""
    clients = [sliced.connect() for _ in range(3)]
    for client in clients:
        topics = [CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in "ab"]
        client.send(CreateTopicsRequest(topics=topics), 7)
    pass_wake_ups(sliced)
    codes = [_codes(client) for client in clients]
    exists = int(ErrorCode.TOPIC_ALREADY_EXISTS)
    assert codes == [[0, 0], [exists, exists], [exists, exists]]


def _codes(client: Client) -> list[int]:
    ((_, response),) = client.replies()
    return [topic.error_code for topic in response.topics]  # type: ignore[attr-defined]


def test_two_metadata_requests_create_a_topic_once(sliced: Broker) -> None:
    clients = [sliced.connect() for _ in range(2)]
    for client in clients:
        client.send(metadata("new"), 12)
    pass_wake_ups(sliced)
    for client in clients:
        ((_, response),) = client.replies()
        assert isinstance(response, MetadataResponse)
        assert [(t.name, t.error_code) for t in response.topics] == [("new", 0)]


def test_large_requests_take_turns_as_a_whole(
    sliced: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoded requests take memory, so only some of them are decoded at the same time."""
    monkeypatch.setattr(pipeline, "MOST_LARGE_BYTES", 50_000)
    request = DescribeGroupsRequest(groups=[f"group-{number:050}" for number in range(400)])
    clients = [sliced.connect() for _ in range(5)]
    for client in clients:
        client.send(request, 6)
    most = 0
    while len(sliced.node.sliced_work):
        sliced.pass_time(1)
        most = max(most, sliced.node.pipeline.large_bytes)
    assert 20_000 < most <= 50_000
    assert sliced.node.pipeline.large_bytes == 0
    assert [client.ids() for client in clients] == [[1]] * 5


def test_smaller_requests_take_turns_too_if_there_are_many(
    sliced: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "MOST_LARGE_BYTES", 10_000)
    request = DescribeGroupsRequest(groups=[f"group-{number:050}" for number in range(60)])
    clients = [sliced.connect() for _ in range(40)]
    for client in clients:
        client.send(request, 6)
    assert len(sliced.node.sliced_work) == 40
    most = 0
    while len(sliced.node.sliced_work):
        sliced.pass_time(1)
        most = max(most, sliced.node.pipeline.large_bytes)
    assert 3000 < most <= 10_000
    assert [client.ids() for client in clients] == [[1]] * 40


def test_a_large_request_that_is_dropped_makes_room(sliced: Broker) -> None:
    request = metadata(*[f"topic-{number:050}" for number in range(400)])
    client = sliced.connect()
    client.send(request, 12)
    sliced.pass_time(1)
    assert sliced.node.pipeline.large_bytes
    sliced.node.close_connection(client.connection)
    pass_wake_ups(sliced, 2)
    assert sliced.node.pipeline.large_bytes == 0


def test_a_large_request_that_is_not_valid_closes_its_connection() -> None:
    broker = Broker(TickingClock())
    request = DescribeGroupsRequest(groups=[f"group-{number}" for number in range(10_000)])
    body = encoder(DescribeGroupsRequest, 6)(request)[:-500]
    frame = bytearray(request_header(request.API_KEY, 6, 1, "client") + body)
    client = broker.connect()
    broker.node.handle(client.connection, frame, memoryview(frame), 0, len(frame))
    while len(broker.node.sliced_work):
        broker.pass_time(1)
    connection = client.connection
    assert connection.closing
    assert connection.problem is not None
    assert "groups" in connection.problem
    assert not connection.pending
    assert connection in broker.node.ready
    assert not connection.takes_requests
