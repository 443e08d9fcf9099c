"""Consume, transform, produce in transactions, while brokers and clients are killed and paused.

Three nodes are brokers and controllers. Copiers are processes of confluent-kafka, aiokafka and
kafka-python, or members of a group of either protocol. In the end the committed output has each
input exactly once and in order, up to the committed offsets.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.copier.handle import Copier
from tests.harness.copier.spec import CopierSpec
from tests.harness.copy_faults import CopyFaults
from tests.harness.exactly_once import Copies
from tests.harness.fault_cluster import FaultCluster

FAULTS = int(os.environ.get("OTTLA_EXACTLY_ONCE_FAULTS", "0"))
SEED = int(os.environ.get("OTTLA_CLUSTER_SEED", "1"))
SOURCE, TARGET, GROUP = "source", "target", "copiers"
PARTITIONS = 2
STATE_PARTITIONS = 5


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FaultCluster]:
    settings = {
        "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        "group.min.session.timeout.ms": "3000",
        "group.consumer.min.session.timeout.ms": "3000",
        "group.consumer.session.timeout.ms": "3000",
        "group.consumer.min.heartbeat.interval.ms": "500",
        "group.consumer.heartbeat.interval.ms": "500",
    }
    with FaultCluster(tmp_path, properties=settings) as started:
        started.create_topic(SOURCE, PARTITIONS)
        started.create_topic(TARGET, PARTITIONS)
        yield started


Fault = Callable[[CopyFaults], None]
WITHOUT_ZOMBIES: list[Fault] = [
    CopyFaults.kill_leader,
    CopyFaults.kill_coordinator,
    CopyFaults.kill_controller,
    CopyFaults.pause_leader,
    CopyFaults.pause_coordinator,
    CopyFaults.pause_controller,
    CopyFaults.kill_copier,
]
EVERY: list[Fault] = [*WITHOUT_ZOMBIES, CopyFaults.fence_copier]


def run(
    cluster: FaultCluster, directory: Path, specs: list[CopierSpec], plan: Sequence[Fault]
) -> None:
    """Do one fault after the other while copiers run, and check everything in the end."""
    copies = Copies(
        cluster.bootstrap_servers, source=SOURCE, target=TARGET, partitions=PARTITIONS, group=GROUP
    )
    copies.fill()
    with ExitStack() as stack:
        copiers = [
            stack.enter_context(Copier(spec, directory / f"{spec.transactional_id}.log"))
            for spec in specs
        ]
        faults = CopyFaults(
            cluster,
            copiers,
            copies,
            random.Random(SEED),
            transactional_ids=[spec.transactional_id for spec in specs],
            state_partitions=STATE_PARTITIONS,
        )
        faults.go_on("start")
        for number, fault in enumerate(plan):
            if FAULTS:
                print(f"{number}: {fault.__name__}, {copies.count()} copies", flush=True)
            fault(faults)
        for copier in copiers:
            copier.stop()
    assert copies.check() > 0


def of_partitions(cluster: FaultCluster, client: str) -> list[CopierSpec]:
    """Return a copier for each partition, which a new one fences by its transactional id."""
    return [
        CopierSpec(client, cluster.bootstrap_servers, SOURCE, TARGET, GROUP, f"copier-{n}", n)
        for n in range(PARTITIONS)
    ]


def of_group(cluster: FaultCluster, protocol: str = "classic") -> list[CopierSpec]:
    """Return the members of a group, which are fenced by their generation or member epoch."""
    servers = cluster.bootstrap_servers
    return [
        CopierSpec("confluent", servers, SOURCE, TARGET, GROUP, f"m-{n}", None, protocol)
        for n in range(PARTITIONS)
    ]


def test_confluent_copies_exactly_once(cluster: FaultCluster, tmp_path: Path) -> None:
    plan = [CopyFaults.pause_coordinator, CopyFaults.fence_copier]
    run(cluster, tmp_path, of_partitions(cluster, "confluent"), plan)


def test_aiokafka_copies_exactly_once(cluster: FaultCluster, tmp_path: Path) -> None:
    plan = [CopyFaults.kill_coordinator, CopyFaults.fence_copier]
    run(cluster, tmp_path, of_partitions(cluster, "aiokafka"), plan)


def test_kafka_python_copies_exactly_once(cluster: FaultCluster, tmp_path: Path) -> None:
    plan = [CopyFaults.kill_leader, CopyFaults.fence_copier]
    run(cluster, tmp_path, of_partitions(cluster, "kafka-python"), plan)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_copies_exactly_once(cluster: FaultCluster, tmp_path: Path, protocol: str) -> None:
    plan = [CopyFaults.kill_controller, CopyFaults.kill_copier]
    run(cluster, tmp_path, of_group(cluster, protocol), plan)


@pytest.mark.skipif(not FAULTS, reason="a long run: make exactly-once")
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "client", ["confluent", "aiokafka", "kafka-python", "classic group", "consumer group"]
)
def test_many_faults(cluster: FaultCluster, tmp_path: Path, client: str) -> None:
    protocol, _, is_group = client.partition(" ")
    specs = of_group(cluster, protocol) if is_group else of_partitions(cluster, client)
    every = WITHOUT_ZOMBIES if is_group else EVERY
    run(cluster, tmp_path, specs, random.Random(SEED).choices(every, k=FAULTS))
