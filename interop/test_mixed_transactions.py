"""Transactions over nodes of Ottla and of Apache Kafka in one cluster, with kill -9 on both sides.

Every broker coordinates the transactions of one client, and leads a partition of each topic. So
markers, verifications and committed offsets go from either system to the other, and each takes
over the open transactions of the other when a node dies. Clients are confluent-kafka, Java's (as
TransactionalMessageCopier) and aiokafka.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from java_programs import JavaCopier
from mixed_cluster.load import create_topic, eventually, isrs, leaders, log_bytes
from mixed_cluster.nodes import (
    BROKER,
    COMBINED,
    KAFKA,
    OTTLA,
    STATE_PARTITIONS,
    MixedCluster,
    Plan,
    mixed_cluster,
)

from ottla.coordinator.runtime.partitioner import partition_of
from ottla.model.ids import TRANSACTIONS_TOPIC
from tests.harness.copier.handle import Copier
from tests.harness.copier.spec import CopierSpec
from tests.harness.copy_faults import CopyFaults
from tests.harness.exactly_once import Copies
from tests.harness.supervised import Supervised

pytestmark = pytest.mark.timeout(900)
SOURCE, TARGET, GROUP = "source", "target", "copiers"
TIMEOUT_S = 180
PLANS: dict[str, Plan] = {
    "a controller of Kafka": {1: (KAFKA, COMBINED), 2: (KAFKA, BROKER), 3: (OTTLA, BROKER)},
    "the quorum moves between both": {
        1: (OTTLA, COMBINED),
        2: (OTTLA, COMBINED),
        3: (KAFKA, COMBINED),
    },
}


@pytest.fixture(autouse=True)
def _needs_kafka(kafka_tool: object) -> None:
    """Skip without the jars of Kafka."""


class FaultyMixedCluster:
    """The brokers as `CopyFaults` wants them. All that can be spared is killed by the test."""

    def __init__(self, cluster: MixedCluster) -> None:
        self._cluster = cluster
        self.kill, self.pause, self.resume = cluster.kill, cluster.pause, cluster.resume

    def start(self, n: int) -> None:
        """Start a broker, and wait until it is in sync: the next one may be killed then."""
        self._cluster.start(n)
        everybody = set(self._cluster.brokers)
        for topic in (SOURCE, TARGET, TRANSACTIONS_TOPIC, "__consumer_offsets"):
            eventually(
                lambda topic=topic: all(  # type: ignore[misc]
                    isr == everybody for isr in isrs(self._cluster.bootstrap, topic)
                ),
                f"all replicas of {topic} are in sync",
            )

    def leader(self, topic: str, partition: int) -> int:
        return leaders(self._cluster.bootstrap, topic)[partition]

    def controller(self) -> int:
        raise NotImplementedError


class EachBroker(CopyFaults):
    """Kills brokers by their ids."""

    def kill_broker(self, n: int) -> None:
        self._kill(n, "kill broker")


@pytest.mark.parametrize("name", PLANS)
def test_transactions_over_both(name: str, tmp_path: Path) -> None:
    with mixed_cluster(tmp_path, PLANS[name]) as cluster, copying(cluster, tmp_path) as faults:
        for n in cluster.brokers:
            if len(cluster.voters) > 1 or n not in cluster.voters:
                faults.kill_broker(n)
        faults.kill_copier()
        faults.fence_copier()


def test_transactions_go_on_while_a_cluster_moves(tmp_path: Path) -> None:
    """Kafka's nodes become Ottla's on their data directories, one by one, and Kafka's again."""
    plan: Plan = {1: (KAFKA, COMBINED), 2: (KAFKA, COMBINED), 3: (KAFKA, COMBINED)}
    with mixed_cluster(tmp_path, plan) as cluster, copying(cluster, tmp_path) as faults:
        for system in (OTTLA, KAFKA):
            for n in cluster.nodes:
                cluster.change(n, system)
                FaultyMixedCluster(cluster).start(n)
                faults.go_on(f"node {n} is one of {system}")


@contextmanager
def copying(cluster: MixedCluster, directory: Path) -> Iterator[EachBroker]:
    """Run copiers, and check everything in the end."""
    brokers = cluster.brokers
    rows = [brokers[n:] + brokers[:n] for n in range(len(brokers))]
    create_topic(cluster.bootstrap, SOURCE, rows)
    create_topic(cluster.bootstrap, TARGET, rows)
    ids = ids_with_each_coordinator(cluster)
    copies = Copies(
        cluster.bootstrap, source=SOURCE, target=TARGET, partitions=len(rows), group=GROUP
    )
    copies.fill()
    with ExitStack() as stack:
        copiers = [stack.enter_context(each) for each in start_copiers(cluster, ids, directory)]
        faults = EachBroker(
            FaultyMixedCluster(cluster),
            copiers,
            copies,
            random.Random(1),
            transactional_ids=ids,
            state_partitions=STATE_PARTITIONS,
            timeout_s=TIMEOUT_S,
        )
        faults.go_on("start")
        yield faults
        for copier in copiers:
            copier.stop()
    assert copies.check() > 0
    for partition in range(len(rows)):
        eventually(
            lambda each=partition: (  # type: ignore[misc]
                len({log_bytes(cluster.data(n), TARGET, each) for n in brokers}) == 1
            ),
            f"all replicas of partition {partition} have the same bytes",
        )


def ids_with_each_coordinator(cluster: MixedCluster) -> list[str]:
    """Return a transactional id for each broker, which coordinates its transactions."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "first"})
    producer.init_transactions(60)  # creates the topic
    eventually(
        lambda: -1 not in leaders(cluster.bootstrap, TRANSACTIONS_TOPIC), "there are coordinators"
    )
    coordinators = leaders(cluster.bootstrap, TRANSACTIONS_TOPIC)
    names = [f"copier-{number}" for number in range(100)]
    found = []
    for broker in cluster.brokers:
        led = [n for n in names if coordinators[partition_of(n, STATE_PARTITIONS)] == broker]
        assert led, f"broker {broker} coordinates nothing: {coordinators}"
        found.append(led[0])
    return found


def start_copiers(cluster: MixedCluster, ids: list[str], directory: Path) -> list[Supervised]:
    """Start a copier of another client for each partition."""
    first, second, third = ids
    servers = cluster.bootstrap
    return [
        Copier(
            CopierSpec("confluent", servers, SOURCE, TARGET, GROUP, first, 0),
            directory / "confluent.log",
        ),
        JavaCopier(
            servers,
            directory / "java.log",
            source=SOURCE,
            target=TARGET,
            group=GROUP,
            transactional_id=second,
            partition=1,
        ),
        Copier(
            CopierSpec("aiokafka", servers, SOURCE, TARGET, GROUP, third, 2),
            directory / "aiokafka.log",
        ),
    ]
