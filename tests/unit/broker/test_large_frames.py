"""A large frame is handled where it was received, in steps, and freed in parts."""

from __future__ import annotations

import pytest

from ottla.broker.connection import Connection
from ottla.records.record import build_batch
from ottla.testing.fakes import START_MS
from ottla.wire.codec import encoder, step_decoder
from ottla.wire.discard import ONE_FRAME_BYTES
from ottla.wire.header import request_header
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.support.broker import Broker

VERSION = 8


def frame_of(partitions: int) -> bytearray:
    """Return an OffsetCommit with 30 KB of metadata for each partition."""
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_metadata="m" * 30_000
                    )
                    for index in range(partitions)
                ],
            )
        ],
    )
    key = request.API_KEY
    return bytearray(
        request_header(key, VERSION, 1, "c") + encoder(OffsetCommitRequest, VERSION)(request)
    )


def send(broker: Broker, frame: bytearray) -> Connection:
    """Send a frame and wait until it is answered, or its connection is to be closed."""
    connection = Connection("127.0.0.1", "PLAINTEXT")
    broker.node.handle(connection, frame, memoryview(frame), 0, len(frame))
    broker.node.settle()
    while not (connection.out or connection.closing) or len(broker.node.sliced_work):
        broker.pass_time(1)
    return connection


@pytest.mark.parametrize("is_first", [True, False])
def test_a_large_frame_is_not_copied(is_first: bool) -> None:
    broker = Broker()
    broker.node.sliced_work.slice_ms = 0  # a step in each wake-up
    if not is_first:
        send(broker, frame_of(1))
    small, large = frame_of(100), frame_of(200)
    sizes = len(small), len(large)
    assert sizes[0] <= ONE_FRAME_BYTES < sizes[1]
    for frame in (large, small) if is_first else (small, large):
        assert not send(broker, frame).closing
    assert len(small) == sizes[0]
    assert len(large) <= ONE_FRAME_BYTES


def test_a_large_frame_that_cannot_be_decoded_is_freed_as_well() -> None:
    broker = Broker()
    broker.node.sliced_work.slice_ms = 0
    frame = frame_of(200)
    del frame[-20_000:]
    assert send(broker, frame).closing
    assert len(frame) <= ONE_FRAME_BYTES


def test_a_produce_with_many_bytes_appends_one_large_batch_at_a_time() -> None:
    broker = Broker(num_partitions="6")
    broker.topic()
    broker.node.sliced_work.slice_ms = 0
    broker.pass_time(1)
    partitions = [broker.node.topics.partition_named("t", index) for index in range(6)]
    records = bytes(build_batch([(None, b"v" * 900_000, START_MS, ())]))
    data = [PartitionProduceData(index=index, records=records) for index in range(6)]
    request = ProduceRequest(
        acks=1, timeout=1000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )
    frame = bytearray(
        request_header(request.API_KEY, 9, 1, "c") + encoder(ProduceRequest, 9)(request)
    )
    connection = Connection("127.0.0.1", "PLAINTEXT")
    broker.node.handle(connection, frame, memoryview(frame), 0, len(frame))
    broker.node.settle()
    ends = [0]
    while not connection.out:
        broker.pass_time(1)
        ends.append(sum(each.online_log().log_end_offset for each in partitions))
        assert ends[-1] <= ends[-2] + 1
    assert ends[-1] == 6
    assert len(frame) <= ONE_FRAME_BYTES


def test_large_fields_are_decoded_in_steps() -> None:
    data = [PartitionProduceData(index=index, records=bytes(300_000)) for index in range(20)]
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=data)])
    body = encoder(ProduceRequest, 9)(request)
    assert len(list(step_decoder(ProduceRequest, 9)(body, 0, len(body)))) > 20
