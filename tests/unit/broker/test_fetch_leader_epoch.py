"""The leader epoch of a fetch: an older or a newer one is refused, and a negative one is none."""

from __future__ import annotations

import pytest

from ottla.model.errors import ErrorCode
from ottla.wire.message import Message
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.support.broker import Broker, produce

VERSION = 12
LEADER_EPOCH = 3


def fetch(leader_epoch: int, offset: int = 0, wait_ms: int = 0) -> Message:
    asked = FetchPartition(
        partition=0,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        partition_max_bytes=10**6,
    )
    return FetchRequest(
        max_wait=wait_ms,
        min_bytes=1,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=[asked])],
    )


def led_broker() -> Broker:
    broker = Broker()
    broker.topic_with("t", leader_epoch=LEADER_EPOCH, isr=(1,), replicas=(1,))
    return broker


@pytest.mark.parametrize(
    ("leader_epoch", "code"),
    [
        (LEADER_EPOCH, ErrorCode.NONE),
        (-1, ErrorCode.NONE),
        (-2, ErrorCode.NONE),
        (LEADER_EPOCH - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (LEADER_EPOCH + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_only_another_epoch_is_refused(leader_epoch: int, code: ErrorCode) -> None:
    client = led_broker().connect()
    client.ask(produce("t"), VERSION)
    answer = client.ask(fetch(leader_epoch), VERSION)
    (partition,) = answer.responses[0].partitions
    assert partition.error_code == code
    assert bool(partition.records) == (code == ErrorCode.NONE)


@pytest.mark.parametrize("leader_epoch", [LEADER_EPOCH, -1, -2])
def test_a_fetch_without_another_epoch_waits_for_records(leader_epoch: int) -> None:
    broker = led_broker()
    consumer = broker.connect()
    consumer.send(fetch(leader_epoch, wait_ms=1000), VERSION)
    broker.node.settle()
    assert consumer.ids() == []
    broker.connect().ask(produce("t"), VERSION)
    broker.node.settle()
    ((_, answer),) = consumer.replies()
    assert answer.responses[0].partitions[0].records  # type: ignore[attr-defined]
