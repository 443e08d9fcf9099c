"""Offsets and leader epochs of partitions without records, as Kafka 4.3 answers them."""

from __future__ import annotations

import pytest

from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.support.broker import Broker, produce


def end_of_epoch(broker: Broker, epoch: int) -> tuple[int, int, int]:
    """Return the error code, the epoch and the end offset of an answer."""
    asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=[asked])]
    )
    found = broker.connect().ask(request).topics[0].partitions[0]
    return found.error_code, found.leader_epoch, found.end_offset


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(-2, (0, -2, 0)), (-1, (0, -1, -1)), (0, (0, 0, 0)), (3, (0, 3, 0)), (4, (0, -1, -1))],
)
def test_epochs_of_an_empty_log(epoch: int, expected: tuple[int, int, int]) -> None:
    broker = Broker()
    broker.topic_with("t", leader_epoch=3, isr=(1,), replicas=(1,))
    assert end_of_epoch(broker, epoch) == expected


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(-2, (0, -2, 0)), (-1, (0, -1, -1)), (2, (0, 2, 0)), (3, (0, 3, 1)), (4, (0, -1, -1))],
)
def test_epochs_of_a_log_with_a_record(epoch: int, expected: tuple[int, int, int]) -> None:
    broker = Broker()
    broker.topic_with("t", leader_epoch=3, isr=(1,), replicas=(1,))
    broker.connect().ask(produce("t"), 12)
    assert end_of_epoch(broker, epoch) == expected


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [(-2, (0, -1, 3)), (-1, (0, -1, 3)), (-4, (0, -1, 3)), (5, (-1, -1, -1))],
)
def test_offsets_of_an_empty_log(timestamp: int, expected: tuple[int, int, int]) -> None:
    broker = Broker()
    broker.topic_with("t", leader_epoch=3, isr=(1,), replicas=(1,))
    asked = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[ListOffsetsTopic(name="t", partitions=[asked])],
    )
    found = broker.connect().ask(request).topics[0].partitions[0]
    assert found.error_code == 0
    assert (found.offset, found.timestamp, found.leader_epoch) == expected
