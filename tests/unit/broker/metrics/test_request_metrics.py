"""Counts, bytes and phases of each API."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.metrics.request_metrics import BOUNDS_MS, Histogram, RequestMetrics
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.api_table import ApiKey
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.metadata import MetadataRequest
from tests.support.broker import Broker, Client, Denying, produce


class SlowHandler:
    """Quotas that throttle nobody, and take their time on the virtual clock."""

    def __init__(self, broker: Broker, duration_ms: int) -> None:
        self.broker = broker
        self.duration_ms = duration_ms

    def throttle_ms(self, context: Any) -> int:
        self.broker.clock.now_ms += self.duration_ms
        return 0


def metrics_of(broker: Broker, key: ApiKey) -> RequestMetrics:
    return broker.node.pipeline.apis[key].metrics


def sums(metrics: RequestMetrics) -> dict[str, float]:
    return {phase: histogram.sum for phase, histogram in metrics.phases().items()}


def counts(metrics: RequestMetrics) -> dict[str, int]:
    return {phase: histogram.count for phase, histogram in metrics.phases().items()}


def wake_up(broker: Broker) -> None:
    broker.node.advance()


def test_requests_and_bytes_are_counted(broker: Broker) -> None:
    client = broker.connect()
    sizes = []
    for request in (MetadataRequest(topics=[]), MetadataRequest(topics=None)):
        client.send(request)
        sizes.append(sum(len(part) for part in client.connection.out if isinstance(part, bytes)))
        client.ids()
    metrics = metrics_of(broker, ApiKey.METADATA)
    assert metrics.requests == 2
    assert metrics.request_bytes == sum(len(frame) for frame in client.kept)
    assert metrics.response_bytes == sum(sizes)


def test_bytes_of_records_in_files_are_counted(broker: Broker) -> None:
    broker.topic()
    client = broker.connect()
    record = produce()
    for _ in range(600):
        client.ask(record, 9)
    partitions = [FetchPartition(partition=0, partition_max_bytes=100_000)]
    request = FetchRequest(
        min_bytes=1,
        max_bytes=100_000,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=partitions)],
    )
    client.send(request, 11)
    sizes = [
        len(part) if isinstance(part, bytes) else part.length for part in client.connection.out
    ]
    assert len(sizes) > 1, "the records are sent from their file"
    assert metrics_of(broker, ApiKey.FETCH).response_bytes == sum(sizes)


def test_the_phases_of_an_immediate_reply(broker: Broker) -> None:
    client = broker.connect()
    broker.node.pipeline.quotas = SlowHandler(broker, 3)
    wake_up(broker)
    broker.clock.now_ms += 2  # other requests of the same wake-up
    client.send(MetadataRequest(topics=None))
    metrics = metrics_of(broker, ApiKey.METADATA)
    assert counts(metrics) == {"queue": 1, "local": 1, "wait": 0, "total": 1}
    assert sums(metrics) == {"queue": 2, "local": 3, "wait": 0, "total": 5}


def send_until_timed(client: Client) -> None:
    """Send 31 requests, so that the next one is timed."""
    for _ in range(31):
        client.ask(produce(acks=1), 9)
    assert counts(metrics_of(client.broker, ApiKey.PRODUCE))["total"] == 0


def test_the_phases_of_a_reply_that_waits(broker: Broker) -> None:
    partition = broker.topic_with("t", isr=(1, 2))
    client = broker.connect()
    send_until_timed(client)
    broker.node.pipeline.quotas = SlowHandler(broker, 3)
    wake_up(broker)
    broker.clock.now_ms += 2
    client.send(produce(), 9)
    broker.node.settle()
    metrics = metrics_of(broker, ApiKey.PRODUCE)
    assert counts(metrics) == {"queue": 1, "local": 1, "wait": 0, "total": 0}
    broker.pass_time(40)
    partition.as_leader().record_fetch(2, 32, broker.clock.monotonic_ms())
    assert counts(metrics) == {"queue": 1, "local": 1, "wait": 1, "total": 1}
    assert sums(metrics) == {"queue": 2, "local": 3, "wait": 40, "total": 45}


def test_one_in_32_frequent_requests_is_timed(broker: Broker) -> None:
    broker.topic()
    client = broker.connect()
    for _ in range(96):
        client.ask(produce(), 9)
    metrics = metrics_of(broker, ApiKey.PRODUCE)
    assert metrics.requests == 96
    assert counts(metrics) == {"queue": 3, "local": 3, "wait": 3, "total": 3}


def test_a_refused_request_is_counted(broker: Broker) -> None:
    broker.node.pipeline.authorizer = Denying(ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    broker.connect().ask(MetadataRequest(topics=None))
    metrics = metrics_of(broker, ApiKey.METADATA)
    assert metrics.requests == 1
    assert counts(metrics)["total"] == 1
    assert metrics.response_bytes > 0


def test_a_reply_that_nobody_gets_is_not_counted(broker: Broker) -> None:
    partition = broker.topic_with("t", isr=(1, 2))
    client = broker.connect()
    client.send(produce(), 9)
    broker.node.settle()
    broker.node.close_connection(client.connection)
    partition.as_leader().record_fetch(2, 1, 0.0)
    metrics = metrics_of(broker, ApiKey.PRODUCE)
    assert (metrics.requests, metrics.response_bytes) == (1, 0)


@pytest.mark.parametrize(
    ("value_ms", "bucket"), [(0, 0), (0.1, 0), (0.11, 1), (10_000, 15), (10_001, 16)]
)
def test_a_value_falls_into_the_bucket_up_to_its_bound(value_ms: float, bucket: int) -> None:
    histogram = Histogram()
    histogram.observe(value_ms)
    assert histogram.buckets.index(1) == bucket
    assert len(histogram.buckets) == len(BOUNDS_MS) + 1
    assert (histogram.count, histogram.sum) == (1, value_ms)
