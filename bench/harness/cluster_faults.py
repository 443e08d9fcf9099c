"""Workloads that start clusters themselves: start, memory, and nodes that are killed or stopped.

In `prepare` a cluster gets its topics and stops cleanly, so that every measured start is a restart.
All timeouts are the defaults. The other system is down meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence

from confluent_kafka.admin import NewTopic

from harness.broker import START_TIMEOUT_S
from harness.cluster import NODES, Cluster
from harness.cluster_state import active_controller, await_brokers, await_in_sync, client_of
from harness.cluster_works import write_to_each
from harness.fresh import FreshWork
from harness.load import run_load
from harness.native import rdkafka_load
from harness.probe import await_acknowledgement
from harness.problem import BenchError
from harness.scale import Scale
from harness.target import Target
from harness.topics import create_topic, submit_topic
from harness.works import Figures
from ottla.client.cluster import Client
from ottla.client.errors import ClientError, check
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

START, KILL_LEADER, STOP_LEADER, KILL_CONTROLLER, RESTART = (
    "cluster-start", "kill-leader", "stop-leader", "kill-controller", "restart-node",
)  # fmt: skip

SYNC_TIMEOUT_S = 300.0
GAP_RATE = 500
GAP_S = 6.0
LONGEST_GAP_S = 90.0
CREATE_TIMEOUT_MS = 1_000
CREATE_EVERY_S = 0.01
CREATING_S = 3.0
"""How long topics are created before and after the controller is killed, at least."""
MEMORY_SETTLE_S = 3.0
IDLE_S = 5.0
"""How long the CPU time of idle nodes is measured."""
PARTITIONS_A_TOPIC = 1000


def start_cluster(cluster: Cluster) -> None:
    """Start all nodes and wait until they are a cluster."""
    cluster.start()
    await_brokers(cluster.target.ports, SYNC_TIMEOUT_S)


def timed_cluster_start(cluster: Cluster, topic: str) -> float:
    """Return the seconds from the start of the processes to the first acknowledged write."""
    began = time.perf_counter()
    cluster.spawn()
    await_acknowledgement(
        cluster.port,
        topic,
        START_TIMEOUT_S,
        lambda: cluster.running,
        others=cluster.other_ports,
        acks=-1,
    )
    return time.perf_counter() - began


class ClusterLife:
    """A start, the memory of idle nodes, then one fault after the other."""

    name = "faults"

    def __init__(self, scale: Scale, parts: Collection[str]) -> None:
        self._scale = scale
        self.rounds = scale.rounds
        self._parts = parts
        self._made = 0

    def prepare(self, cluster: Cluster) -> None:
        """Create a topic and write to it."""
        start_cluster(cluster)
        create_topic(cluster.port, "first", 1, {}, replicas=NODES, others=cluster.other_ports)
        await_in_sync((cluster.port,), 1, SYNC_TIMEOUT_S)
        cluster.stop()

    def measure(self, cluster: Cluster) -> Figures:
        """Return the figures of the chosen parts."""
        figures = {START: timed_cluster_start(cluster, "first")}
        await_in_sync((cluster.port,), 1, SYNC_TIMEOUT_S)
        time.sleep(self._scale.memory_settle_s)
        figures["node-memory"] = cluster.target.resident_mb() / NODES
        faults: dict[str, Callable[[Cluster], float]] = {
            KILL_LEADER: self._kill_leader,
            STOP_LEADER: self._stop_leader,
            KILL_CONTROLLER: self._kill_controller,
        }
        for name, fault in faults.items():
            if name in self._parts:
                figures[name] = fault(cluster)
        cluster.stop()
        return {key: value for key, value in figures.items() if self._is_wanted(key)}

    def _is_wanted(self, key: str) -> bool:
        return key in self._parts or (key == "node-memory" and START in self._parts)

    def _kill_leader(self, cluster: Cluster) -> float:
        return self._lose_leader(cluster, lambda leader: cluster.node(leader).kill())

    def _stop_leader(self, cluster: Cluster) -> float:
        return self._lose_leader(cluster, lambda leader: cluster.node(leader).terminate())

    def _lose_leader(self, cluster: Cluster, lose: Callable[[int], None]) -> float:
        """Return the longest gap between acknowledgements when a leader is lost.

        The leader is not the active controller, which is another row.
        """
        controller = active_controller(cluster.target.ports)
        leader, other = (n for n in range(1, NODES + 1) if n != controller)
        topic = self._new_topic(cluster, [leader, other, controller])
        survivors = cluster.survivors(leader)
        first, second = (node.target for node in survivors)
        report = run_load(
            rdkafka_load(),
            Target(first.port, first.pid, (second,)),
            "gap",
            cluster.target.ports_text,
            topic,
            GAP_RATE,
            GAP_S,
            LONGEST_GAP_S,
            on_begin=lambda: lose(leader),
        )
        self._bring_back(cluster, leader)
        return report["gap_s"]

    def _kill_controller(self, cluster: Cluster) -> float:
        """Return the longest gap between two created topics when the active controller dies."""
        controller = active_controller(cluster.target.ports)
        ports = [node.port for node in cluster.survivors(controller)]
        creating = TopicCreation(ports, f"created-{self._made}")
        self._made += 1
        creating.start()
        try:
            time.sleep(CREATING_S)
            creating.begin()
            cluster.node(controller).kill()
            gap_s = creating.finish()
        finally:
            creating.end()
        self._bring_back(cluster, controller)
        return gap_s

    def _new_topic(self, cluster: Cluster, replicas: list[int]) -> str:
        """Create a topic whose partition is led by the first of the replicas."""
        self._made += 1
        topic = f"fault-{self._made}"
        submit_topic(
            cluster.port,
            NewTopic(topic, 1, replica_assignment=[replicas]),
        )
        await_acknowledgement(
            cluster.port, topic, START_TIMEOUT_S, others=cluster.other_ports, acks=-1
        )
        await_in_sync((cluster.port,), 1, SYNC_TIMEOUT_S)
        return topic

    def _bring_back(self, cluster: Cluster, node_id: int) -> None:
        node = cluster.node(node_id)
        node.stop()
        node.start()
        ports = [each.port for each in cluster.survivors(node_id)]
        await_in_sync(ports, 1, SYNC_TIMEOUT_S)


class TopicCreation(threading.Thread):
    """Creates small topics one after the other, through brokers that stay alive."""

    def __init__(self, ports: Sequence[int], prefix: str) -> None:
        super().__init__(daemon=True)
        self._ports = list(ports)
        self._prefix = prefix
        self._count = self._tried = 0
        self._last = time.perf_counter()
        self._longest = 0.0
        self._ended = threading.Event()
        self._last_error = "none was created"

    def begin(self) -> None:
        """Count gaps from now on."""
        if not self._count:
            raise BenchError(f"no topic was created: {self._last_error}")
        self._longest = 0.0
        self._began = time.perf_counter()

    def finish(self) -> float:
        """Return the longest gap, once topics are created steadily again."""
        deadline = self._began + LONGEST_GAP_S
        while time.perf_counter() < deadline:
            time.sleep(0.05)
            quiet = time.perf_counter() - self._last > CREATE_TIMEOUT_MS / 2000
            if not quiet and time.perf_counter() - self._began > 2 * CREATING_S + self._longest:
                return self._longest
        raise BenchError(f"no topics are created any more: {self._last_error}")

    def end(self) -> None:
        """Create no more topics."""
        self._ended.set()
        self.join(10)

    def run(self) -> None:
        """Create topics until told to end."""
        while not self._ended.is_set():
            self._ports.append(self._ports.pop(0))
            try:
                with client_of(self._ports, CREATE_TIMEOUT_MS) as client:
                    while not self._ended.is_set():
                        self._create(client)
            except ClientError as error:
                self._last_error = str(error)
                time.sleep(CREATE_EVERY_S)

    def _create(self, client: Client) -> None:
        deadline = client.deadline("creating a topic")
        topic = CreatableTopic(
            name=f"{self._prefix}-{self._tried}", num_partitions=1, replication_factor=NODES
        )
        self._tried += 1
        request = CreateTopicsRequest(topics=[topic], timeout=CREATE_TIMEOUT_MS)
        answer = client.call(client.any(deadline), request, CreateTopicsResponse, deadline)
        (result,) = answer.topics
        check(result.error_code, result.name, result.error_message)
        now = time.perf_counter()
        self._longest = max(self._longest, now - self._last)
        self._last = now
        self._count += 1
        time.sleep(CREATE_EVERY_S)


class FullCluster:
    """A cluster with very many partitions: its memory, and the restart of a node."""

    name = RESTART
    rounds = 1  # most of the time is for its preparation

    def __init__(self, scale: Scale) -> None:
        self._partitions = scale.restart_partitions

    def prepare(self, cluster: Cluster) -> None:
        """Create the partitions, with a write to each."""
        start_cluster(cluster)
        for number in range(0, self._partitions, PARTITIONS_A_TOPIC):
            topic, count = f"many-{number}", min(PARTITIONS_A_TOPIC, self._partitions - number)
            submit_topic(cluster.port, NewTopic(topic, count, replication_factor=NODES))
            write_to_each(cluster.target.ports_text, topic, count)
        await_in_sync((cluster.port,), self._partitions, SYNC_TIMEOUT_S)
        cluster.stop()

    def measure(self, cluster: Cluster) -> Figures:
        """Stop and start a node that is not the active controller."""
        start_cluster(cluster)
        await_in_sync((cluster.port,), self._partitions, SYNC_TIMEOUT_S)
        time.sleep(MEMORY_SETTLE_S)
        figures = {"node-memory-full": cluster.target.resident_mb() / NODES}
        before = cluster.target.cpu_seconds()
        time.sleep(IDLE_S)
        idle_s = cluster.target.cpu_seconds() - before
        figures["_idle_cpu_percent_a_node"] = 100 * idle_s / IDLE_S / NODES
        controller = active_controller(cluster.target.ports)
        node_id = 1 + controller % NODES
        ports = [each.port for each in cluster.survivors(node_id)]
        node = cluster.node(node_id)
        stopping = time.perf_counter()
        node.stop()
        began = time.perf_counter()
        figures["_stop_s"] = began - stopping
        node.spawn()
        await_in_sync(ports, self._partitions, SYNC_TIMEOUT_S)
        figures[RESTART] = time.perf_counter() - began
        cluster.stop()
        return figures


def fresh_cluster_works(scale: Scale, is_wanted: Callable[[str], bool]) -> list[FreshWork[Cluster]]:
    """Return these workloads with the parts that are wanted."""
    parts = [n for n in (START, KILL_LEADER, STOP_LEADER, KILL_CONTROLLER) if is_wanted(n)]
    works: list[FreshWork[Cluster]] = [ClusterLife(scale, parts)] if parts else []
    if is_wanted(RESTART):
        works.append(FullCluster(scale))
    return works


FRESH_NAMES = (START, KILL_LEADER, STOP_LEADER, KILL_CONTROLLER, RESTART)
