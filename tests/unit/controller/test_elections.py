"""ElectLeaders: which partitions get another leader, and the error of those that do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.config.broker import BrokerConfig
from ottla.controller.elections import elect_leaders, elect_preferred
from ottla.controller.partition_change import Election
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import ConfigRecord, PartitionRecord, TopicRecord
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.steps import run_to_end
from ottla.wire.message import Message

ID = b"t" * 16
Apply = Callable[[MetadataImage, list[Message]], None]


@pytest.fixture
def image(brokers: Callable[..., MetadataImage], apply: Apply) -> MetadataImage:
    """Return three brokers, of which 3 is fenced, and a topic with a partition for each case."""
    image = brokers(3, fenced=(3,))
    records: list[Message] = [TopicRecord(name="t", topic_id=ID)]
    for index, (replicas, isr, leader) in enumerate(
        [
            ([1, 2], [1, 2], 1),  # led by its first replica
            ([1, 2], [1, 2], 2),  # led by the other one
            ([3, 1], [1], 1),  # the first one is fenced
            ([1, 3], [3], -1),  # the one in sync is fenced
            ([3], [3], -1),  # the only one is fenced
        ]
    ):
        records.append(
            PartitionRecord(
                partition_id=index, topic_id=ID, replicas=replicas, isr=isr, leader=leader
            )
        )
    apply(image, records)
    return image


def outcome(
    image: MetadataImage, election: Election, *indexes: int
) -> tuple[dict[int, int], dict[int, ErrorCode | None]]:
    """Return the new leaders and the errors by partition; without indexes, of all partitions."""
    names = [TopicPartition("t", index) for index in indexes] or None
    decision = run_to_end(elect_leaders(image, BrokerConfig(), election, names))
    leaders = {record.partition_id: record.leader for record in decision.records}  # type: ignore[attr-defined]
    codes = {
        each.partition.partition: None if each.error is None else each.error.code
        for each in decision.results
    }
    return leaders, codes


def test_preferred_leaders(image: MetadataImage) -> None:
    leaders, codes = outcome(image, Election.PREFERRED, 0, 1, 2, 3, 9)
    assert leaders == {1: 1}
    assert codes == {
        0: ErrorCode.ELECTION_NOT_NEEDED,
        1: None,
        2: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        3: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_unclean_elections(image: MetadataImage) -> None:
    leaders, codes = outcome(image, Election.UNCLEAN, 1, 3, 4)
    assert leaders == {3: 1}
    assert codes == {
        1: ErrorCode.ELECTION_NOT_NEEDED,
        3: None,
        4: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    }


def test_of_all_partitions_only_those_that_need_it_are_told(image: MetadataImage) -> None:
    assert set(outcome(image, Election.PREFERRED)[1]) == {1, 2, 3, 4}
    assert set(outcome(image, Election.UNCLEAN)[1]) == {3, 4}


def test_an_unknown_topic(image: MetadataImage) -> None:
    names = [TopicPartition("nothing", 0)]
    decision = run_to_end(elect_leaders(image, BrokerConfig(), Election.PREFERRED, names))
    (result,) = decision.results
    assert result.error is not None
    assert result.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_balance_follows_a_topic_that_allows_unclean_elections(
    image: MetadataImage, apply: Apply
) -> None:
    allowed = ConfigRecord(
        resource_type=2, resource_name="t", name="unclean.leader.election.enable", value="true"
    )
    apply(image, [allowed])
    records = run_to_end(elect_preferred(image, BrokerConfig(), 10))
    assert [(each.partition_id, each.leader) for each in records] == [(1, 1), (3, 1)]  # type: ignore[attr-defined]
    assert len(run_to_end(elect_preferred(image, BrokerConfig(), 1))) == 1


def test_a_small_imbalance_is_tolerated(image: MetadataImage) -> None:
    # Broker 1 is preferred for three partitions, and another one leads one of them.
    for percentage, moved in ((33, [1]), (34, [])):
        config = BrokerConfig({"leader.imbalance.per.broker.percentage": str(percentage)})
        records = run_to_end(elect_preferred(image, config, 10))
        assert [each.partition_id for each in records] == moved  # type: ignore[attr-defined]


def test_the_balance_moves_what_can_be_moved(image: MetadataImage) -> None:
    records = run_to_end(elect_preferred(image, BrokerConfig(), 10))
    assert [(each.partition_id, each.leader) for each in records] == [(1, 1)]  # type: ignore[attr-defined]
