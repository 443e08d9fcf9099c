"""Nodes of Ottla and of Apache Kafka in one cluster, under load and with kill -9.

Every test writes with acks=all and idempotence. In the end each acknowledged record is at its
offset, none is there twice, and the logs of all replicas have the same bytes.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from mixed_cluster.group import GroupMember
from mixed_cluster.load import (
    Load,
    add_password,
    brokers,
    check_nothing_lost,
    create_topic,
    eventually,
    isrs,
    leaders,
    log_bytes,
)
from mixed_cluster.nodes import (
    BROKER,
    COMBINED,
    CONTROLLER,
    KAFKA,
    OTTLA,
    MixedCluster,
    Plan,
    mixed_cluster,
)

pytestmark = pytest.mark.timeout(600)
TOPIC = "shared"
METADATA = "__cluster_metadata-0"
FIRST_SNAPSHOT = "00000000000000000000-0000000000.checkpoint"

PLANS: dict[str, Plan] = {
    "a broker of Ottla joins a controller of Kafka": {
        1: (KAFKA, COMBINED), 2: (KAFKA, BROKER), 3: (OTTLA, BROKER),
    },
    "a broker of Ottla joins three controllers of Kafka": {
        1: (KAFKA, COMBINED), 2: (KAFKA, COMBINED), 3: (OTTLA, BROKER), 4: (KAFKA, CONTROLLER),
    },
    "a broker of Kafka joins three controllers of Ottla": {
        1: (OTTLA, COMBINED), 2: (OTTLA, COMBINED), 3: (KAFKA, BROKER), 4: (OTTLA, CONTROLLER),
    },
    "a voter of Ottla among voters of Kafka": {
        1: (OTTLA, COMBINED), 2: (KAFKA, COMBINED), 3: (KAFKA, COMBINED),
    },
    "a voter of Kafka among voters of Ottla": {
        1: (OTTLA, COMBINED), 2: (OTTLA, COMBINED), 3: (KAFKA, COMBINED),
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def _needs_kafka(kafka_tool: object) -> None:
    """Skip without the jars of Kafka."""


@pytest.mark.parametrize("name", PLANS)
def test_a_kill_on_either_side_loses_nothing(name: str, tmp_path: Path) -> None:
    """Kill each node in turn, while it leads one partition and follows two."""
    with mixed_cluster(tmp_path, PLANS[name]) as cluster:
        create_shared_topic(cluster)
        with Load(cluster.bootstrap, TOPIC, 3) as load:
            load.progress()
            for victim in cluster.nodes:
                if len(cluster.voters) == 1 and victim in cluster.voters:
                    continue
                cluster.nodes[victim].kill()
                if victim in cluster.brokers:
                    eventually(
                        lambda dead=victim: dead not in leaders(cluster.bootstrap, TOPIC),  # type: ignore[misc]
                        f"node {victim} leads no more",
                    )
                load.progress()
                cluster.start(victim)
                wait_for_all_replicas(cluster)
                load.progress()
        check(cluster, load)


def test_a_kafka_cluster_moves_to_ottla_and_back(tmp_path: Path) -> None:
    """Change node by node, on the same data directories, under load and with a group."""
    plan: Plan = {1: (KAFKA, COMBINED), 2: (KAFKA, COMBINED), 3: (KAFKA, COMBINED)}
    with mixed_cluster(tmp_path, plan) as cluster:
        create_shared_topic(cluster)
        member = GroupMember(cluster.bootstrap, "readers", TOPIC, 3)
        load = Load(cluster.bootstrap, TOPIC, 3)
        with member, load:
            load.progress()
            for system in (OTTLA, KAFKA):
                for node_id in cluster.nodes:
                    cluster.change(node_id, system)
                    cluster.start(node_id)
                    wait_for_all_replicas(cluster)
                    load.progress()
            load.stop()
            eventually(lambda: load.acked.keys() <= member.seen, "the group has read all")
            eventually(
                lambda: sum(member.committed.values()) == len(load.acked), "the group has committed"
            )
        assert member.went_back == []
        assert member.doubled == 0
        check(cluster, load)


SNAPSHOT_SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "metadata.max.retention.bytes": "2000",
    "min.insync.replicas": "1",
}
UPGRADE_PLANS: dict[str, tuple[Plan, list[int]]] = {
    "Kafka leads": (
        {1: (OTTLA, COMBINED), 2: (KAFKA, COMBINED), 3: (KAFKA, COMBINED)}, [1],
    ),
    "Ottla leads": (
        {1: (OTTLA, COMBINED), 2: (OTTLA, COMBINED), 3: (KAFKA, COMBINED)}, [3],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UPGRADE_PLANS)
def test_static_voters_of_both_become_dynamic(name: str, tmp_path: Path) -> None:
    """A leader writes the voters into the log when it knows what each of them supports."""
    plan, later = UPGRADE_PLANS[name]
    with mixed_cluster(tmp_path, plan, later=later) as cluster:
        cluster.start(*later)

        def is_upgraded() -> bool:
            return ottla("features", "upgrade", "kraft.version=1", "-b", cluster.bootstrap)

        eventually(is_upgraded, "kraft.version is 1", 60)
        cluster.nodes[1].stop()
        cluster.start(1)  # it registers in a cluster that has dynamic voters
        create_topic(cluster.bootstrap, TOPIC, [[1, 2, 3]])
        wait_for_all_replicas(cluster)


def ottla(*arguments: str) -> bool:
    """Run a command; return True if it succeeds."""
    program = [sys.executable, "-m", "ottla.cli.main", *arguments]
    return subprocess.run(program, check=False, capture_output=True).returncode == 0


SNAPSHOT_PLANS: dict[str, Plan] = {
    "Ottla takes Kafka's": {1: (KAFKA, COMBINED), 2: (OTTLA, BROKER)},
    "Kafka takes Ottla's": {
        1: (OTTLA, COMBINED), 3: (OTTLA, CONTROLLER), 4: (OTTLA, CONTROLLER), 2: (KAFKA, BROKER),
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SNAPSHOT_PLANS)
def test_a_new_broker_starts_from_the_others_snapshot(name: str, tmp_path: Path) -> None:
    """The log begins after the snapshot, so it is the only way to the older records."""
    plan = SNAPSHOT_PLANS[name]
    with mixed_cluster(tmp_path, plan, SNAPSHOT_SETTINGS, later=[2]) as cluster:
        create_topic(cluster.bootstrap, TOPIC, [[1]])
        if plan[1][0] == KAFKA:
            add_password(cluster.bootstrap)
        lose_first_snapshot(cluster)
        taken = snapshots(cluster.data(1))
        cluster.start(2)
        eventually(lambda: 2 in brokers(cluster.bootstrap), "the new broker is there")
        assert taken & snapshots(cluster.data(2)), "the new broker has not fetched a snapshot"
        create_topic(cluster.bootstrap, "of-both", [[2, 1]])
        with Load(cluster.bootstrap, "of-both", 1) as load:
            load.progress()
        check_nothing_lost(load, cluster.bootstrap, "of-both", 1)


def snapshots(data: Path) -> set[str]:
    """Return the names of the metadata snapshots of a node."""
    return {path.name for path in (data / METADATA).glob("*.checkpoint")} - {FIRST_SNAPSHOT}


def lose_first_snapshot(cluster: MixedCluster) -> None:
    """Create topics until a controller has removed its oldest snapshot, and the log before it.

    Kafka looks for what is old once a minute.
    """
    seen: set[str] = set()

    def is_gone() -> bool:
        seen.update(snapshots(cluster.data(1)))
        create_topic(cluster.bootstrap, f"topic-{time.monotonic_ns()}", [[1]] * 5)
        return bool(seen - snapshots(cluster.data(1)))

    eventually(is_gone, "the oldest snapshot is removed", 150)


def create_shared_topic(cluster: MixedCluster) -> None:
    """Create a topic whose partitions have replicas on all brokers, one leader each."""
    first, second, third = cluster.brokers
    assignment = [[first, second, third], [second, third, first], [third, first, second]]
    create_topic(cluster.bootstrap, TOPIC, assignment)


def wait_for_all_replicas(cluster: MixedCluster) -> None:
    everybody = set(cluster.brokers)
    eventually(
        lambda: all(isr == everybody for isr in isrs(cluster.bootstrap, TOPIC)),
        "all replicas are in sync",
    )


def check(cluster: MixedCluster, load: Load) -> None:
    check_nothing_lost(load, cluster.bootstrap, TOPIC, 3)
    for partition in range(3):
        logs = {log_bytes(cluster.data(broker), TOPIC, partition) for broker in cluster.brokers}
        assert len(logs) == 1, f"the logs of partition {partition} differ"
