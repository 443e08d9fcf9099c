"""What nodes as old as a level of metadata.version can read."""

from __future__ import annotations

import pytest

from ottla.metadata.image import MetadataImage
from ottla.metadata.record_versions import at_level, encode_at, level_of
from ottla.metadata.records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from ottla.metadata.serde import decode_record
from ottla.wire.message import Message

PARTITION = PartitionRecord(
    replicas=[1], isr=[1], leader=1, directories=[b"d" * 16], eligible_leader_replicas=[2]
)


def version(record: Message, level: int) -> int:
    return encode_at(level)(record)[2]


@pytest.mark.parametrize(
    ("level", "broker", "partition"),
    [(7, 1, 0), (8, 2, 0), (16, 2, 0), (17, 3, 1), (22, 3, 1), (23, 3, 2), (25, 3, 2), (30, 3, 2)],
)
def test_a_level_decides_on_the_versions_of_records(
    level: int, broker: int, partition: int
) -> None:
    assert version(RegisterBrokerRecord(), level) == broker
    assert version(PartitionRecord(), level) == partition
    assert version(PartitionChangeRecord(), level) == partition
    assert version(TopicRecord(), level) == 0
    assert version(BrokerRegistrationChangeRecord(), level) == 2


@pytest.mark.parametrize(
    ("level", "directories", "eligible"), [(16, [], None), (22, [b"d" * 16], None)]
)
def test_what_a_record_cannot_tell_is_left_out(
    level: int, directories: list[bytes], eligible: None
) -> None:
    (left,) = at_level([PARTITION], level)
    assert isinstance(left, PartitionRecord)
    assert (left.directories, left.eligible_leader_replicas) == (directories, eligible)
    assert decode_record(encode_at(level)(left)) == left
    assert at_level([PARTITION], 23) == [PARTITION]


def test_a_cluster_that_begins_has_the_level_of_its_records() -> None:
    records = [FeatureLevelRecord(name="metadata.version", feature_level=21)]
    assert level_of(MetadataImage("cluster"), records) == 21
    assert level_of(MetadataImage("cluster", features={"metadata.version": 17}), records) == 17
