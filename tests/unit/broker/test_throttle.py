"""Quotas: the response tells the throttle time, and the connection is held back for it."""

from __future__ import annotations

import pytest

from ottla.broker.handlers import SERVED
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.apis import request_class
from ottla.wire.message import Message
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_commit import OffsetCommitRequest
from tests.support.broker import (
    CLIENT_ID,
    Broker,
    Client,
    Denying,
    Throttling,
    each_version,
    filled,
    has_throttle_time,
    produce,
)

THROTTLE_MS = 250
VERSIONS = each_version(SERVED)


def throttled(time_ms: int = THROTTLE_MS) -> Broker:
    broker = Broker()
    broker.topic()
    broker.node.pipeline.quotas = Throttling(time_ms)
    return broker


@pytest.fixture(scope="module")
def shared() -> Broker:
    return throttled()


def wait_for_reply(client: Client) -> Message:
    """Return the next response, however long it takes."""
    for _ in range(100):
        client.broker.node.settle()
        for _, response in client.replies():
            return response
        client.broker.pass_time(100)
    raise AssertionError("there is no reply")


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_every_response_tells_the_throttle_time(shared: Broker, key: int, version: int) -> None:
    client = shared.connect()
    client.send(filled(request_class(key), version), version)
    response = wait_for_reply(client)
    expected = THROTTLE_MS if has_throttle_time(key, version) else 0
    assert getattr(response, "throttle_time", 0) == expected


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_a_refusal_tells_the_throttle_time(shared: Broker, key: int, version: int) -> None:
    pipeline = shared.node.pipeline
    pipeline.authorizer = Denying(ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    response = shared.connect().ask(filled(request_class(key), version), version)
    pipeline.authorizer = None
    expected = THROTTLE_MS if has_throttle_time(key, version) else 0
    assert getattr(response, "throttle_time", 0) == expected


def test_a_throttled_connection_waits_and_others_do_not() -> None:
    broker = throttled()
    client, other = broker.connect(), broker.connect()
    client.ask(produce(), 9)
    assert not client.connection.takes_requests
    assert other.connection.takes_requests
    broker.node.ready.clear()
    broker.pass_time(THROTTLE_MS - 1)
    assert not client.connection.takes_requests
    assert broker.node.ready == []
    broker.pass_time(1)
    assert client.connection.takes_requests
    assert broker.node.ready == [client.connection]
    assert client.ask(produce(), 9).throttle_time == THROTTLE_MS


def test_the_quota_knows_the_client_even_of_frequent_requests() -> None:
    broker = throttled(0)
    client = broker.connect()
    client.ask(produce(), 9)
    client.ask(MetadataRequest(topics=None))
    quotas = broker.node.pipeline.quotas
    assert isinstance(quotas, Throttling)
    assert quotas.seen == [("Produce", CLIENT_ID), ("Metadata", CLIENT_ID)]
    assert client.connection.takes_requests


def long_poll(max_wait: int) -> FetchRequest:
    partitions = [FetchPartition(partition=0, partition_max_bytes=1000)]
    return FetchRequest(
        max_wait=max_wait,
        min_bytes=1,
        max_bytes=1000,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=partitions)],
    )


def test_a_parked_request_that_is_answered_early_leaves_the_connection_throttled() -> None:
    broker = throttled()
    client = broker.connect()
    client.send(long_poll(100), 11)
    broker.pass_time(100)
    ((_, response),) = client.replies()
    assert response.throttle_time == THROTTLE_MS  # type: ignore[attr-defined]
    assert not client.connection.takes_requests
    broker.pass_time(THROTTLE_MS - 100)
    assert client.connection.takes_requests


def test_a_parked_request_that_takes_longer_than_the_throttle_time_stays_parked() -> None:
    broker = throttled()
    client = broker.connect()
    client.send(long_poll(1000), 11)
    broker.pass_time(THROTTLE_MS)
    assert not client.connection.takes_requests
    assert client.ids() == []
    broker.pass_time(1000 - THROTTLE_MS)
    assert len(client.ids()) == 1
    assert client.connection.takes_requests


def test_the_throttle_time_runs_while_a_produce_waits_for_followers() -> None:
    broker = throttled()
    partition = broker.topic_with("two", isr=(1, 2))
    client = broker.connect()
    client.send(produce("two"), 9)
    broker.node.settle()
    assert not client.connection.takes_requests
    broker.pass_time(THROTTLE_MS)
    assert client.connection.takes_requests
    partition.as_leader().record_fetch(2, 1, broker.clock.monotonic_ms())
    ((_, response),) = client.replies()
    assert response.throttle_time == THROTTLE_MS


def test_a_produce_without_acks_is_throttled_too() -> None:
    broker = throttled()
    client = broker.connect()
    client.send(produce(acks=0), 9)
    broker.node.settle()
    assert client.ids() == []
    assert not client.connection.takes_requests


def test_a_throttled_connection_that_closes_is_not_woken() -> None:
    broker = throttled()
    client = broker.connect()
    client.ask(produce(), 9)
    broker.node.close_connection(client.connection)
    broker.node.ready.clear()
    broker.pass_time(THROTTLE_MS)
    assert broker.node.ready == []


class Refusing:
    """Quotas that refuse (KIP-599)."""

    def throttle_ms(self, context: object) -> int:
        raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many")


def test_a_quota_may_refuse_a_request() -> None:
    broker = throttled()
    broker.node.pipeline.quotas = Refusing()
    response = broker.connect().ask(produce(), 9)
    code = response.responses[0].partition_responses[0].error_code
    assert code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert broker.node.topics.partition_named("t", 0).online_log().log_end_offset == 0


def test_a_metadata_reply_from_the_cache_tells_the_throttle_time() -> None:
    broker = throttled()
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    first = broker.connect().ask(request, 9)
    again = broker.connect().ask(request, 9)
    assert first == again
    assert again.throttle_time == THROTTLE_MS
    broker.node.pipeline.quotas = None
    assert broker.connect().ask(request, 9).throttle_time == 0


def test_an_offset_commit_of_a_frequent_version_tells_the_throttle_time() -> None:
    broker = throttled()
    client = broker.connect()
    client.send(filled(OffsetCommitRequest, 9), 9)
    response = wait_for_reply(client)
    assert response.throttle_time == THROTTLE_MS  # type: ignore[attr-defined]
    assert response.topics[0].name == "t"  # type: ignore[attr-defined]
