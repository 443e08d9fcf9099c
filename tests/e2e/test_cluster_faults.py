"""Faults of a cluster of three processes under acks=all load: nothing is lost or doubled.

A long run with all kinds of faults: `make faults`, or FAULTS=200 SEED=7 make faults.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness import network_namespaces, small_disk
from tests.harness.acked_load import AckedLoad
from tests.harness.cluster_faults import ClusterFaults
from tests.harness.early_reader import EarlyReader
from tests.harness.fault_cluster import FaultCluster

TOPIC = "ledger"
PARTITIONS = 3
FAULTS = int(os.environ.get("OTTLA_CLUSTER_FAULTS", "0"))
SEED = int(os.environ.get("OTTLA_CLUSTER_SEED", "1"))
Fault = Callable[[ClusterFaults], None]

PROCESS_FAULTS: list[Fault] = [
    ClusterFaults.kill_leader,
    ClusterFaults.kill_follower,
    ClusterFaults.kill_controller,
    ClusterFaults.pause_leader,
    ClusterFaults.pause_follower,
    ClusterFaults.pause_controller,
    ClusterFaults.rolling_restart,
    ClusterFaults.lose_directory,
    ClusterFaults.lose_everything,
]
NETWORK_FAULTS: list[Fault] = [
    ClusterFaults.cut_off_leader,
    ClusterFaults.cut_off_follower,
    ClusterFaults.cut_off_controller,
    ClusterFaults.cut_leader_one_way,
    ClusterFaults.cut_one_pair,
]
DISK_FAULTS: list[Fault] = [ClusterFaults.fill_disk]


@pytest.fixture(scope="session")
def has_networks() -> bool:
    return network_namespaces.are_allowed()


@pytest.fixture
def has_disks(tmp_path: Path) -> bool:
    return small_disk.are_allowed(tmp_path)


@pytest.fixture
def networks(has_networks: bool) -> None:
    if not has_networks:
        pytest.skip("this machine does not allow network namespaces")


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest, tmp_path: Path, has_networks: bool, has_disks: bool
) -> Iterator[FaultCluster]:
    is_long = request.node.get_closest_marker("timeout") is not None
    with FaultCluster(
        tmp_path,
        networks=has_networks and (is_long or "networks" in request.fixturenames),
        disk_mebibytes=100 if has_disks and is_long else None,
    ) as cluster:
        yield cluster


def run(cluster: FaultCluster, plan: list[Fault]) -> None:
    """Do one fault after the other under load, and check everything in the end."""
    cluster.create_topic(TOPIC, PARTITIONS)
    load = AckedLoad(cluster.bootstrap_servers, TOPIC, PARTITIONS)
    reader = EarlyReader(cluster.bootstrap_servers, TOPIC, PARTITIONS)
    load.start()
    reader.start()
    load.await_more(20, "start")
    faults = ClusterFaults(cluster, load, TOPIC, random.Random(SEED))
    for number, fault in enumerate(plan):
        if FAULTS:
            print(f"{number}: {fault.__name__}", flush=True)
        fault(faults)
    load.finish()
    reader.stop()
    assert load.check() > 0
    reader.check(load.acked)


def test_killed_brokers_lose_nothing(cluster: FaultCluster) -> None:
    run(
        cluster,
        [ClusterFaults.kill_leader, ClusterFaults.kill_follower, ClusterFaults.kill_controller],
    )


def test_a_paused_leader_is_replaced(cluster: FaultCluster) -> None:
    run(cluster, [ClusterFaults.pause_leader])


def test_a_rolling_restart_is_invisible(cluster: FaultCluster) -> None:
    run(cluster, [ClusterFaults.rolling_restart])


def test_a_node_comes_back_without_its_disk(cluster: FaultCluster) -> None:
    run(cluster, [ClusterFaults.lose_directory, ClusterFaults.lose_everything])


def test_a_leader_that_is_cut_off_is_replaced(networks: None, cluster: FaultCluster) -> None:
    run(cluster, [ClusterFaults.cut_off_leader])


@pytest.mark.skipif(not FAULTS, reason="a long run: make faults")
@pytest.mark.timeout(0)
def test_many_faults(cluster: FaultCluster) -> None:
    every = list(PROCESS_FAULTS)
    if cluster.networks is not None:
        every += NETWORK_FAULTS
    if cluster.disks:
        every += DISK_FAULTS
    run(cluster, random.Random(SEED).choices(every, k=FAULTS))
