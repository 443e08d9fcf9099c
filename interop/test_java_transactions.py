"""Kafka's own TransactionalMessageCopier copies topics of Ottla exactly once, whatever dies.

It is Java's producer and consumer in Kafka's own system tests: transactions with offsets, a third
of them aborted on purpose.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from java_programs import JavaCopier

from ottla.testing import Cluster
from tests.harness.copy_faults import CopyFaults, FaultyCluster
from tests.harness.exactly_once import Copies
from tests.harness.fault_cluster import FaultCluster

pytestmark = pytest.mark.timeout(600)
SOURCE, TARGET, GROUP = "source", "target", "copiers"
PARTITIONS = 2
STATE_PARTITIONS = 5
SETTINGS = {
    "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
TIMEOUT_S = 150
Fault = Callable[[CopyFaults], None]
FAULTS: dict[str, list[Fault]] = {
    "brokers are killed": [
        CopyFaults.kill_coordinator,
        CopyFaults.kill_leader,
        CopyFaults.kill_controller,
    ],
    "brokers are paused": [CopyFaults.pause_coordinator, CopyFaults.pause_leader],
    "copiers die and come back as zombies": [
        CopyFaults.kill_copier,
        CopyFaults.fence_copier,
        CopyFaults.kill_copier,
    ],
}


@pytest.fixture(autouse=True)
def _needs_kafka(kafka_tool: object) -> None:
    """Skip without the jars of Kafka."""


@pytest.mark.parametrize("name", FAULTS)
def test_copies_on_three_brokers(name: str, tmp_path: Path) -> None:
    with FaultCluster(tmp_path, properties=SETTINGS) as cluster:
        cluster.create_topic(SOURCE, PARTITIONS)
        cluster.create_topic(TARGET, PARTITIONS)
        copy(cluster, cluster.bootstrap_servers, tmp_path, FAULTS[name])


def test_a_group_copies_on_three_brokers(tmp_path: Path) -> None:
    """Members share the input, and are fenced by the generation of their group (KIP-447)."""
    plan = [CopyFaults.kill_copier, CopyFaults.kill_coordinator]
    with FaultCluster(tmp_path, properties=SETTINGS) as cluster:
        cluster.create_topic(SOURCE, PARTITIONS)
        cluster.create_topic(TARGET, PARTITIONS)
        copy(cluster, cluster.bootstrap_servers, tmp_path, plan, of_group=True)


def test_copies_on_one_broker(tmp_path: Path) -> None:
    with Cluster(processes=True, data_dir=tmp_path / "data", properties=SETTINGS) as cluster:
        cluster.create_topic(SOURCE, PARTITIONS)
        cluster.create_topic(TARGET, PARTITIONS)

        def restart(faults: CopyFaults) -> None:
            cluster.kill()
            cluster.start()
            faults.go_on("kill the broker")

        plan = [restart, CopyFaults.kill_copier, restart, CopyFaults.fence_copier, restart]
        copy(cluster, cluster.bootstrap_servers, tmp_path, plan)


def copy(
    cluster: FaultyCluster,
    servers: str,
    directory: Path,
    plan: Sequence[Fault],
    *,
    of_group: bool = False,
) -> None:
    """Do one fault after the other while copiers run, and check everything in the end."""
    copies = Copies(servers, source=SOURCE, target=TARGET, partitions=PARTITIONS, group=GROUP)
    copies.fill()
    with ExitStack() as stack:
        copiers = [
            stack.enter_context(
                JavaCopier(
                    servers,
                    directory / f"copier-{index}.log",
                    source=SOURCE,
                    target=TARGET,
                    group=GROUP,
                    transactional_id=f"copier-{index}",
                    partition=None if of_group else index,
                )
            )
            for index in range(PARTITIONS)
        ]
        faults = CopyFaults(
            cluster,
            copiers,
            copies,
            random.Random(1),
            transactional_ids=[copier.transactional_id for copier in copiers],
            state_partitions=STATE_PARTITIONS,
            timeout_s=TIMEOUT_S,
        )
        faults.go_on("start")
        for fault in plan:
            fault(faults)
        for copier in copiers:
            copier.stop()
    assert copies.check() > 0
