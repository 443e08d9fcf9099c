from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.config.broker import BrokerConfig
from ottla.controller.partitions import MorePartitions
from ottla.controller.topics import NewTopic
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import PartitionRecord
from ottla.model.errors import ErrorCode
from ottla.ports import Random
from ottla.wire.message import Message
from tests.support.decisions import create_partitions, create_topics


@pytest.fixture
def image(
    brokers: Callable[..., MetadataImage],
    random: Random,
    apply: Callable[[MetadataImage, list[Message]], None],
) -> MetadataImage:
    image = brokers(3)
    apply(image, create_topics(image, BrokerConfig(), random, [NewTopic("a", 2, 2)]).records)
    return image


def test_partitions_are_added_behind_the_old_ones(image: MetadataImage, random: Random) -> None:
    decision = create_partitions(image, random, [MorePartitions("a", 4)])
    assert [result.error for result in decision.results] == [None]
    assert [
        (record.partition_id, len(record.replicas), record.leader_epoch)
        for record in decision.records
        if isinstance(record, PartitionRecord)
    ] == [(2, 2, 0), (3, 2, 0)]


def test_replicas_of_the_new_ones_by_hand(image: MetadataImage, random: Random) -> None:
    wanted = MorePartitions("a", 4, [[3, 1], [2, 3]])
    records = create_partitions(image, random, [wanted]).records
    assert [r.replicas for r in records if isinstance(r, PartitionRecord)] == [[3, 1], [2, 3]]


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        (MorePartitions("b", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic b"),
        (MorePartitions("a", 2), ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        (MorePartitions("a", 1), ErrorCode.INVALID_PARTITIONS, "1 would not be an increase"),
        (MorePartitions("a", -1), ErrorCode.INVALID_PARTITIONS, "-1 would not be an increase"),
        (MorePartitions("a", 10_003), ErrorCode.POLICY_VIOLATION, "not 10001"),
        (
            MorePartitions("a", 4, [[1, 2]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            MorePartitions("a", 3, []),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "but only 0 assignment(s)",
        ),
        (
            MorePartitions("a", 3, [[1]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "with 1 replica(s), but this is not consistent with previous partitions, which have 2",
        ),
        (
            MorePartitions("a", 3, [[1, 7]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "includes broker 7, but no such broker is registered.",
        ),
    ],
)
def test_what_cannot_be_added_says_why(
    image: MetadataImage, random: Random, wanted: MorePartitions, code: ErrorCode, message: str
) -> None:
    decision = create_partitions(image, random, [wanted])
    error = decision.results[0].error
    assert decision.records == []
    assert error is not None
    assert error.code == code
    assert message in str(error)


def test_a_topic_named_twice_is_refused(image: MetadataImage, random: Random) -> None:
    decision = create_partitions(image, random, [MorePartitions("a", 3), MorePartitions("a", 4)])
    assert decision.records == []
    assert [r.error.code for r in decision.results if r.error] == [ErrorCode.INVALID_REQUEST]
