"""DescribeLogDirs with Ottla's own fields: in requests of any size, and for logs of any length."""

from __future__ import annotations

import pytest

from ottla.broker.api import LARGE_BYTES
from ottla.testing.fakes import START_MS
from ottla.wire.codec import decoder, encoder
from ottla.wire.header import decode_response_header, request_header
from ottla.wire.log_dirs_extension import (
    LogDirsPartition,
    LogDirsRequest,
    LogDirsResponse,
)
from ottla.wire.messages.describe_log_dirs import DescribableLogDirTopic
from tests.support.broker import Broker, produce
from tests.support.request_cost import cost_of

VERSION = 4


def described(broker: Broker, request: LogDirsRequest) -> LogDirsPartition:
    """Return the only log that the response has, with our fields."""
    connection = broker.connect().connection
    node = broker.node
    body = request_header(request.API_KEY, VERSION, 1, "c") + encoder(LogDirsRequest, VERSION)(
        request
    )
    frame = bytearray(body)
    node.handle(connection, frame, memoryview(frame), 0, len(frame))
    node.settle()
    while not connection.out:
        broker.pass_time(1)
    reply = b"".join(part for part in connection.out if isinstance(part, bytes))
    _, start = decode_response_header(request.API_KEY, VERSION, reply, 4, len(reply))
    response, _ = decoder(LogDirsResponse, VERSION)(reply, start, len(reply))
    ((partition,),) = [topic.partitions for topic in response.results[0].topics]
    assert isinstance(partition, LogDirsPartition)
    return partition


def test_a_large_request_asks_for_our_fields_as_a_small_one_does() -> None:
    broker = Broker()
    broker.topic("t")
    assert broker.connect().ask(produce("t"), 12)
    for count in (1, LARGE_BYTES):
        topic = DescribableLogDirTopic(topic="t", partitions=[0] * count)
        plain = described(broker, LogDirsRequest(topics=[topic]))
        assert plain.segments is None
        shown = described(broker, LogDirsRequest(topics=[topic], with_segments=True))
        assert shown.segments is not None
        assert [(each.base_offset, each.size) for each in shown.segments] == [
            (0, shown.partition_size)
        ]


def test_the_segments_of_a_log_are_described_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    monkeypatch.setattr(broker.node.ports.files, "free_bytes", lambda path: (1, 1))
    log = broker.topic("t").online_log()
    for number in range(3000):
        broker.connect().ask(produce("t"), 12)
        log.roll(START_MS + number)
    broker.node.sliced_work.slice_ms = 0
    broker.pass_time(1)
    cost = cost_of(broker, LogDirsRequest(topics=None, with_segments=True), VERSION)
    assert cost.response_bytes > 3000 * 16
    assert cost.most_calls < 5000
