"""AlterPartitionReassignments: begun, changed while they run, cancelled, refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from ottla.config.broker import BrokerConfig
from ottla.controller.reassignments import WantedReplicas, alter_reassignments, reassigning
from ottla.metadata.image import MetadataImage, PartitionImage
from ottla.metadata.records import ConfigRecord, PartitionChangeRecord, PartitionRecord, TopicRecord
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.steps import run_to_end
from ottla.wire.message import Message

ID = b"t" * 16
Apply = Callable[[MetadataImage, list[Message]], None]
NAME = TopicPartition("t", 0)


@pytest.fixture
def image(brokers: Callable[..., MetadataImage], apply: Apply) -> MetadataImage:
    image = brokers(5, fenced=(5,))
    partition = PartitionRecord(
        partition_id=0, topic_id=ID, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1
    )
    apply(image, [TopicRecord(name="t", topic_id=ID), partition])
    return image


@pytest.fixture
def reassign(image: MetadataImage, apply: Apply) -> Callable[..., ErrorCode | None]:
    def ask(replicas: Sequence[int] | None, *, allow: bool = True) -> ErrorCode | None:
        decision = run_to_end(
            alter_reassignments(
                image,
                BrokerConfig(),
                [WantedReplicas(NAME, replicas)],
                allow_replication_factor_change=allow,
            )
        )
        apply(image, decision.records)
        (result,) = decision.results
        return None if result.error is None else result.error.code

    return ask


def now(image: MetadataImage) -> PartitionImage:
    return image.topics["t"].partitions[0]


def shape(image: MetadataImage) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    partition = now(image)
    return partition.replicas, partition.adding_replicas, partition.removing_replicas


def test_begin_and_cancel(image: MetadataImage, reassign: Callable[..., ErrorCode | None]) -> None:
    assert reassign(None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert run_to_end(reassigning(image, None)) == {}
    assert reassign([2, 4]) is None
    assert shape(image) == ((2, 4, 1, 3), (4,), (1, 3))
    assert run_to_end(reassigning(image, None)) == {NAME: now(image)}
    asked = [NAME, NAME, TopicPartition("t", 9)]
    assert run_to_end(reassigning(image, asked)) == {NAME: now(image)}
    epoch = now(image).leader_epoch
    assert reassign(None) is None
    assert shape(image) == ((2, 1, 3), (), ())
    assert (now(image).isr, now(image).leader) == ((1, 2, 3), 1)
    assert now(image).leader_epoch == epoch + 1


def test_another_target_while_it_runs(
    image: MetadataImage, reassign: Callable[..., ErrorCode | None]
) -> None:
    assert reassign([1, 4]) is None
    assert reassign([1, 4, 5]) is None
    assert shape(image) == ((1, 4, 5, 2, 3), (4, 5), (2, 3))
    assert reassign([1, 2, 3]) is None
    assert now(image).replicas == (1, 2, 3)
    assert shape(image) == ((1, 2, 3), (), ())


def test_fewer_replicas_at_once(
    image: MetadataImage, reassign: Callable[..., ErrorCode | None]
) -> None:
    assert reassign([3]) is None
    assert shape(image) == ((3,), (), ())
    assert (now(image).isr, now(image).leader) == ((3,), 3)


@pytest.mark.parametrize("replicas", [[], [1, 1], [9], [5]])
def test_impossible_replicas(
    reassign: Callable[..., ErrorCode | None], replicas: list[int]
) -> None:
    assert reassign(replicas) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_the_replication_factor_can_be_protected(
    image: MetadataImage, reassign: Callable[..., ErrorCode | None]
) -> None:
    assert reassign([1, 4], allow=False) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign([1, 2, 4], allow=False) is None
    assert reassign([1, 2, 3, 4], allow=False) == ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_cancel_that_would_lose_records(
    image: MetadataImage, reassign: Callable[..., ErrorCode | None], apply: Apply
) -> None:
    assert reassign([4, 2]) is None
    apply(image, [PartitionChangeRecord(partition_id=0, topic_id=ID, isr=[4], leader=4)])
    assert reassign(None) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    setting = ConfigRecord(
        resource_type=2,
        resource_name="t",
        name="unclean.leader.election.enable",
        value="true",
    )
    apply(image, [setting])
    assert reassign(None) is None
    assert shape(image) == ((2, 1, 3), (), ())
    assert now(image).leader in now(image).isr


def test_unknown_and_repeated_partitions(image: MetadataImage) -> None:
    asked = [WantedReplicas(name, [1]) for name in (NAME, NAME, TopicPartition("u", 0))]
    results = run_to_end(alter_reassignments(image, BrokerConfig(), asked)).results
    assert [each.error and each.error.code for each in results] == [
        None,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
