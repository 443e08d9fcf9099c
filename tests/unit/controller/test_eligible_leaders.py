"""One min.insync.replicas for the whole cluster."""

from __future__ import annotations

from typing import TypeVar

import pytest

from ottla.config.broker import BrokerConfig
from ottla.controller.eligible_leaders import (
    forget_eligible_leaders,
    switch_off,
    unused_min_insync_replicas,
)
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import (
    NO_LEADER,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    TopicRecord,
)
from ottla.model.config_resources import ResourceType
from ottla.model.steps import Steps
from tests.support.request_cost import count_calls

T = TypeVar("T")

ELR = {"eligible.leader.replicas.version": 1}


@pytest.mark.parametrize(
    ("own", "features", "is_told"),
    [("1", ELR, True), ("2", ELR, False), (None, ELR, False), ("1", {}, False)],
)
def test_a_broker_tells_of_a_value_that_does_not_count(
    own: str | None, features: dict[str, int], is_told: bool
) -> None:
    cluster_wide: dict[tuple[int, str], dict[str, str]] = {
        (ResourceType.BROKER, ""): {"min.insync.replicas": "2"}
    }
    image = MetadataImage("cluster", features=features, configs=cluster_wide)
    config = BrokerConfig({} if own is None else {"min.insync.replicas": own}, {})
    message = unused_min_insync_replicas(image, config)
    assert (message is not None) == is_told
    assert message is None or message.startswith("min.insync.replicas=1 is not used: the cluster")


MANY = 4000
MOST_CALLS = 1500


@pytest.mark.parametrize(("topics", "partitions"), [(1, MANY), (MANY, 1)])
def test_no_step_is_for_all_partitions(topics: int, partitions: int) -> None:
    """None of them has a leader, so each has a record when min.insync.replicas changes."""
    delta = MetadataDelta(MetadataImage("cluster"))
    delta.replay(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))
    for number in range(topics):
        topic_id = number.to_bytes(16)
        delta.replay(TopicRecord(name=f"t{number}", topic_id=topic_id))
        for partition_id in range(partitions):
            delta.replay(
                PartitionRecord(
                    partition_id=partition_id,
                    topic_id=topic_id,
                    replicas=[1, 2],
                    isr=[],
                    leader=NO_LEADER,
                    eligible_leader_replicas=[2],
                )
            )
    image = delta.apply()
    change = ConfigRecord(
        resource_type=ResourceType.BROKER,
        resource_name="",
        name="min.insync.replicas",
        value="1",
    )
    for steps in (forget_eligible_leaders(image, [change]), switch_off(image)):
        records, calls = run_and_count(steps)
        assert len(records) == MANY + 1
        assert calls < MOST_CALLS
    delta = MetadataDelta(image)
    _, calls = run_and_count(delta.replay_in_steps([ClearElrRecord(topic_name="")]))
    assert calls < MOST_CALLS
    after, calls = run_and_count(delta.apply_in_steps())
    assert calls < MOST_CALLS
    partition = after.topics["t0"].partitions[partitions - 1]
    assert partition.eligible_leader_replicas == ()


def run_and_count(steps: Steps[T]) -> tuple[T, int]:
    """Return the result of all steps, and the calls of the step that made most."""
    results: list[T] = []

    def step() -> None:
        try:
            next(steps)
        except StopIteration as end:
            results.append(end.value)

    most = 0
    while not results:
        most = max(most, count_calls(step))
    return results[0], most
