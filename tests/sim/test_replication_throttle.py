"""Throttles of replication hold the bandwidth, on the leader and on the follower."""

from __future__ import annotations

import pytest

from ottla.records.record import build_batch
from ottla.sim.cluster import SimCluster
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.sim.test_quorum_of_several import NODES, active
from tests.sim.test_replication import create, image, started

RATE = 100_000
BATCH = 200_000
BATCHES = 10
TOPIC, BROKER = 2, 4


def configure(cluster: SimCluster, kind: int, name: str, settings: dict[str, str]) -> None:
    controller = active(cluster)
    assert controller is not None
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    AlterableConfig(name=key, config_operation=0 if value else 1, value=value)
                    for key, value in settings.items()
                ],
            )
        ]
    )
    response = cluster.ask(controller, request, 1)
    assert [each.error_code for each in response.responses] == [0]  # type: ignore[attr-defined]


def fill(cluster: SimCluster, leader: int) -> None:
    value = bytes(BATCH)
    for _ in range(BATCHES):
        data = PartitionProduceData(index=0, records=bytes(build_batch([(None, value, 1, ())])))
        topic = TopicProduceData(name="t", partition_data=[data])
        request = ProduceRequest(acks=1, timeout=10_000, topic_data=[topic])
        response = cluster.ask(leader, request, 9)
        (answer,) = response.responses  # type: ignore[attr-defined]
        assert answer.partition_responses[0].error_code == 0


def move(cluster: SimCluster, replicas: list[int]) -> None:
    controller = active(cluster)
    assert controller is not None
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    topic = ReassignableTopic(name="t", partitions=[partition])
    request = AlterPartitionReassignmentsRequest(timeout=10_000, topics=[topic])
    response = cluster.ask(controller, request, 0)
    assert response.responses[0].partitions[0].error_code == 0  # type: ignore[attr-defined]


def copied(cluster: SimCluster, number: int) -> int:
    topic = cluster.node(number).topics.named("t")
    partition = None if topic is None else topic.partitions.get(0)
    return 0 if partition is None or partition.log is None else partition.log.size


@pytest.mark.parametrize("side", ["leader", "follower"])
@pytest.mark.parametrize("named", ["*", "replica"])
def test_the_rate_holds_and_everything_arrives(side: str, named: str) -> None:
    cluster = started(1)
    create(cluster, "t", replicas=1)
    source = image(cluster, 1, "t").leader
    target = next(each for each in NODES if each != source)
    fill(cluster, source)
    throttled = source if side == "leader" else target
    replicas = "*" if named == "*" else f"0:{throttled}"
    configure(cluster, TOPIC, "t", {f"{side}.replication.throttled.replicas": replicas})
    configure(cluster, BROKER, "", {f"{side}.replication.throttled.rate": str(RATE)})
    cluster.run_for(1_000)
    begun_ms = cluster.timeline.now_ms
    move(cluster, [target])
    cluster.run_until(lambda: copied(cluster, target) > 0)
    while (size := copied(cluster, target)) < BATCH * BATCHES:
        seconds = (cluster.timeline.now_ms - begun_ms) / 1000
        # What is saved up in a second, what a single fetch may take too much, and the rate
        assert size <= RATE + 1_100_000 + RATE * seconds, f"{size} bytes after {seconds} s"
        assert seconds < 60, f"{size} bytes after {seconds} s"
        cluster.run_for(500)
    cluster.run_until(lambda: image(cluster, target, "t").replicas == (target,))
    assert cluster.timeline.now_ms - begun_ms > 1000 * (BATCH * BATCHES - 1_200_000) / RATE


def test_other_replicas_are_not_throttled() -> None:
    cluster = started(2)
    create(cluster, "t", replicas=1)
    source = image(cluster, 1, "t").leader
    target = next(each for each in NODES if each != source)
    fill(cluster, source)
    names = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
    configure(cluster, TOPIC, "t", dict.fromkeys(names, f"1:{source},1:{target},0:77"))
    rates = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
    configure(cluster, BROKER, "", dict.fromkeys(rates, "1000"))
    move(cluster, [target])
    begun_ms = cluster.timeline.now_ms
    cluster.run_until(lambda: image(cluster, target, "t").replicas == (target,))
    assert cluster.timeline.now_ms - begun_ms < 10_000
