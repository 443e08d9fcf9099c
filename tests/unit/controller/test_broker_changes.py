"""A broker that comes or goes changes all its partitions, a few with each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.config.broker import BrokerConfig
from ottla.controller import broker_changes
from ottla.controller.brokers import ELR_VERSION
from ottla.controller.log_directories import lose_directories
from ottla.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.model.steps import Steps
from tests.support.request_cost import count_calls

MANY = 2000
MOST_CALLS = 3000
"""In one step: some dozens for each of the partitions that it changes."""
ID = b"t" * 16
CONFIG = BrokerConfig()


def directory(broker_id: int) -> bytes:
    return bytes([broker_id]) * 16


def cluster(leader: int, *, fenced: bool = False) -> MetadataImage:
    """Return an image of three brokers that replicate many partitions. Broker 1 may be fenced."""
    ids = (1, 2, 3)
    isr = ids if leader > 0 else (1,)
    partitions = [
        PartitionImage(index, ids, isr, leader, 3, 4, tuple(map(directory, ids)))
        for index in range(MANY)
    ]
    topic = TopicImage("t", ID, tuple(partitions))
    brokers = {
        each: BrokerImage(
            each, each, b"i" * 16, (), fenced=fenced and each == 1, log_dirs=(directory(each),)
        )
        for each in ids
    }
    return MetadataImage(
        topics={"t": topic}, topics_by_id={ID: topic}, brokers=brokers, features={ELR_VERSION: 1}
    )


def lose_directory(image: MetadataImage, config: BrokerConfig, broker_id: int) -> Steps[Any]:
    return lose_directories(image, config, broker_id, [directory(broker_id)])


def record_count(steps: Steps[Any]) -> int:
    """Return how many records steps make. None of the steps makes many calls."""
    results: list[Any] = []
    is_over = False

    def step() -> None:
        nonlocal is_over
        try:
            next(steps)
        except StopIteration as end:
            is_over = True
            results.append(end.value)

    while not is_over:
        assert count_calls(step) <= MOST_CALLS
    (result,) = results
    return len(result)


@pytest.mark.parametrize(
    ("change", "image"),
    [
        (broker_changes.fence, cluster(1)),
        (broker_changes.shut_down, cluster(1)),
        (broker_changes.unregister, cluster(1)),
        (broker_changes.unfence, cluster(-1, fenced=True)),
        (lose_directory, cluster(1)),
    ],
    ids=["fence", "shut_down", "unregister", "unfence", "lose_directory"],
)
def test_all_partitions_and_the_broker_change_in_steps(
    change: Callable[[MetadataImage, BrokerConfig, int], Steps[Any]], image: MetadataImage
) -> None:
    assert record_count(change(image, CONFIG, 1)) == MANY + 1


def test_an_unclean_return_changes_partitions_in_steps() -> None:
    assert record_count(broker_changes.return_unclean(cluster(1), CONFIG, 1)) == MANY
