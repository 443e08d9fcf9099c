"""A large frame is handled where it was received, and freed in parts."""

from __future__ import annotations

import pytest

from ottla.broker.connection import Connection
from ottla.wire.codec import encoder
from ottla.wire.discard import ONE_FRAME_BYTES
from ottla.wire.header import request_header
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
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
