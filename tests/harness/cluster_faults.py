"""Faults of a cluster, each with its end, while a load writes with acks=all."""

from __future__ import annotations

import random

from tests.harness.acked_load import AckedLoad
from tests.harness.deadline import eventually
from tests.harness.fault_cluster import NODES, FaultCluster

WRITES = 20
"""So many writes to each partition show that the cluster goes on."""


class ClusterFaults:
    """Each public method is one fault. It returns when it is over and writes go on."""

    def __init__(
        self, cluster: FaultCluster, load: AckedLoad, topic: str, choose: random.Random
    ) -> None:
        self._cluster = cluster
        self._load = load
        self._topic = topic
        self._choose = choose

    # -- who it meets --------------------------------------------------------------------

    def _leader(self) -> int:
        partition = self._choose.randrange(len(self._load.acked))
        found = eventually(
            lambda: max(0, self._cluster.leader(self._topic, partition)), "there is a leader", 60
        )
        assert found in NODES
        return found

    def _follower(self) -> int:
        leader = self._leader()
        return self._choose.choice([n for n in NODES if n != leader])

    def _go_on(self, what: str) -> None:
        self._load.await_more(WRITES, what)

    def await_full_isrs(self) -> None:
        """Wait until all replicas of all partitions are in sync."""
        partitions = range(len(self._load.acked))
        eventually(
            lambda: all(self._cluster.isr(self._topic, each) == set(NODES) for each in partitions),
            "all replicas are in sync",
            60,
        )

    # -- processes -----------------------------------------------------------------------

    def kill_leader(self) -> None:
        self._kill(self._leader(), "kill leader")

    def kill_follower(self) -> None:
        self._kill(self._follower(), "kill follower")

    def kill_controller(self) -> None:
        self._kill(self._cluster.controller(), "kill active controller")

    def _kill(self, n: int, what: str) -> None:
        self._cluster.kill(n)
        self._go_on(f"{what} {n}")
        self._cluster.start(n)
        self._go_on(f"{what} {n}, started again")

    def pause_leader(self) -> None:
        self._pause(self._leader(), "pause leader")

    def pause_follower(self) -> None:
        self._pause(self._follower(), "pause follower")

    def pause_controller(self) -> None:
        self._pause(self._cluster.controller(), "pause active controller")

    def _pause(self, n: int, what: str) -> None:
        self._cluster.pause(n)
        try:
            self._go_on(f"{what} {n}")
        finally:
            self._cluster.resume(n)
        self._go_on(f"{what} {n}, resumed")

    def rolling_restart(self) -> None:
        for n in self._choose.sample(NODES, len(NODES)):
            self._cluster.stop(n)
            self._go_on(f"stop {n}")
            self._cluster.start(n)

    # -- networks ------------------------------------------------------------------------

    def cut_off_leader(self) -> None:
        self._cut_off(self._leader(), "cut off leader")

    def cut_off_follower(self) -> None:
        self._cut_off(self._follower(), "cut off follower")

    def cut_off_controller(self) -> None:
        self._cut_off(self._cluster.controller(), "cut off active controller")

    def _cut_off(self, n: int, what: str) -> None:
        networks = self._cluster.networks
        assert networks is not None
        networks.cut_off(n)
        self._go_on(f"{what} {n}")
        networks.heal()
        self._go_on(f"{what} {n}, healed")

    def cut_leader_one_way(self) -> None:
        """Drop what the leader sends to others, or what others send to it."""
        self._cut_one_way(self._leader())

    def cut_one_pair(self) -> None:
        """Drop everything between two nodes; the third one reaches both."""
        networks = self._cluster.networks
        assert networks is not None
        one, other = self._choose.sample(NODES, 2)
        networks.cut(one, other)
        networks.cut(other, one)
        self._go_on(f"cut {one} and {other} off each other")
        networks.heal()
        self._go_on(f"healed {one} and {other}")

    def _cut_one_way(self, n: int) -> None:
        networks = self._cluster.networks
        assert networks is not None
        sends = self._choose.random() < 0.5
        for other in NODES:
            if other != n:
                networks.cut(*((n, other) if sends else (other, n)))
        self._go_on(f"nothing that node {n} {'sends' if sends else 'is sent'} arrives")
        networks.heal()
        self._go_on(f"node {n} is heard again")

    # -- disks ---------------------------------------------------------------------------

    def fill_disk(self) -> None:
        """Fill a node's disk: partitions that others lead go on; its own wait for room."""
        n = self._choose.choice(NODES)
        led = {
            each
            for each in range(len(self._load.acked))
            if self._cluster.leader(self._topic, each) == n
        }
        disk = self._cluster.disks[n]
        disk.fill()
        others = set(range(len(self._load.acked))) - led
        self._load.await_more(WRITES, f"fill the disk of {n}", partitions=others)
        assert self._cluster.is_running(n)
        disk.make_room()
        self._go_on(f"make room on the disk of {n}")

    def lose_directory(self) -> None:
        """Take the directory with its records from a node, and start the node without it."""
        n = self._leader()
        self._cluster.lose_data_directory(n)
        self._go_on(f"lose the directory of leader {n}")
        if self._cluster.is_running(n):
            self._cluster.kill(n)
        self._cluster.start(n)
        self._go_on(f"start {n} without its directory")
        self.await_full_isrs()

    def lose_everything(self) -> None:
        """Start a node that is not the active controller again, on an empty disk."""
        controller = self._cluster.controller()
        n = self._choose.choice([n for n in NODES if n != controller])
        self.await_full_isrs()
        self._cluster.kill(n)
        self._go_on(f"kill {n}")
        self._cluster.erase(n)
        self._cluster.start(n)
        self._go_on(f"start {n} on an empty disk")
        self.await_full_isrs()
