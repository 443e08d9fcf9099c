"""`ottla.testing.Cluster` with several brokers: on threads and as processes, and its faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.client.address import parse_addresses
from ottla.client.cluster import Client
from ottla.log.file_names import CLEAN_SHUTDOWN
from ottla.server.errors import StartupError
from ottla.testing import Cluster
from tests.harness.confluent import Confluent
from tests.harness.deadline import eventually

FAST = {"broker.session.timeout.ms": 1000, "broker.heartbeat.interval.ms": 200}


def write(cluster: Cluster, topic: str, value: bytes) -> None:
    """Write with acks=all; raise if it is not acknowledged."""
    with Confluent().producer(cluster.bootstrap_servers, acks="all") as producer:
        producer.send(topic, value)
        (ack,) = producer.flush(30)
        assert not ack.error


@pytest.mark.parametrize("processes", [False, True])
def test_brokers_stop_and_come_back(processes: bool) -> None:
    with Cluster(3, processes=processes) as cluster:
        assert len(cluster.bootstrap_servers.split(",")) == 3
        cluster.create_topic("orders")
        write(cluster, "orders", b"1")
        first = cluster.leader("orders")
        cluster.stop(first)
        eventually(lambda: cluster.leader("orders") not in (-1, first), "another one leads")
        write(cluster, "orders", b"2")
        cluster.restart(first)
        cluster.restart()
        write(cluster, "orders", b"3")
        assert cluster.controller() in (1, 2, 3)


def known_brokers(server: str) -> list[int]:
    """Return the brokers that one of them knows."""
    with Client(parse_addresses(server)) as client:
        client.metadata([], client.deadline("asking"))
        return sorted(client.brokers)


def test_a_cluster_is_ready_when_each_broker_knows_all_others() -> None:
    with Cluster(3, processes=True) as cluster:
        for _ in range(3):
            for server in cluster.bootstrap_servers.split(","):
                assert known_brokers(server) == [1, 2, 3]
            cluster.restart()


def test_brokers_without_proxies() -> None:
    with Cluster(3, processes=True, memory=True, proxied=False) as cluster:
        cluster.create_topic("orders")
        cluster.kill(cluster.leader("orders"))
        write(cluster, "orders", b"1")
        with pytest.raises(RuntimeError, match="proxies between them"):
            cluster.partition_network(1)


@pytest.mark.parametrize("processes", [False, True])
def test_a_killed_broker_is_replaced(processes: bool) -> None:
    with Cluster(3, processes=processes, memory=True) as cluster:
        cluster.create_topic("orders")
        first = cluster.leader("orders")
        cluster.kill(first)
        with pytest.raises(RuntimeError, match=f"broker {first} is not running"):
            cluster.pause(first)
        eventually(lambda: cluster.leader("orders") not in (-1, first), "another one leads")
        write(cluster, "orders", b"1")
        cluster.start(first)


@pytest.mark.parametrize("processes", [False, True])
def test_a_broker_that_is_cut_off_is_replaced(processes: bool) -> None:
    with Cluster(3, processes=processes, memory=True, properties=FAST) as cluster:
        cluster.create_topic("orders")
        first = cluster.leader("orders")
        cluster.partition_network(first)
        eventually(
            lambda: leader_for_others(cluster, first) not in (-1, first), "another one leads"
        )
        cluster.heal()
        write(cluster, "orders", b"1")


def leader_for_others(cluster: Cluster, away: int) -> int:
    """Return who leads, as a broker knows it that is not cut off; -1 if it knows of nobody yet."""
    address = cluster.bootstrap_servers.split(",")[away % 3]
    with Client(parse_addresses(address)) as client:
        (topic,) = client.metadata(["orders"], client.deadline("asking"))
        return topic.partitions[0].leader_id if topic.partitions else -1


@pytest.mark.parametrize("processes", [False, True])
def test_a_paused_broker_goes_on(processes: bool) -> None:
    with Cluster(3, processes=processes, memory=True, properties=FAST) as cluster:
        cluster.create_topic("orders")
        first = cluster.leader("orders")
        cluster.pause(first)
        eventually(
            lambda: leader_for_others(cluster, first) not in (-1, first), "another one leads"
        )
        cluster.resume(first)
        write(cluster, "orders", b"1")
        cluster.pause(first)
        cluster.pause(first)


def test_a_killed_thread_loses_nothing_and_is_no_clean_shutdown(tmp_path: Path) -> None:
    with Cluster(data_dir=tmp_path) as cluster:
        cluster.create_topic("orders")
        for number in range(4):
            write(cluster, "orders", str(number).encode())
            cluster.kill()
            assert not cluster.running
            assert not (tmp_path / CLEAN_SHUTDOWN).exists()
            cluster.start()
        with Confluent().consumer(cluster.bootstrap_servers) as consumer:
            consumer.assign({("orders", 0): 0})
            assert [each.value for each in consumer.take(4)] == [b"0", b"1", b"2", b"3"]
        cluster.stop()
        assert (tmp_path / CLEAN_SHUTDOWN).exists()


def test_what_a_cluster_cannot_do() -> None:
    with pytest.raises(ValueError, match="at least one broker"):
        Cluster(0)
    with pytest.raises(ValueError, match=r"node\.id differs from broker to broker"):
        Cluster(3, properties={"node.id": 4}).start()
    with pytest.raises(StartupError, match=r"num\.partitons"):
        Cluster(3, properties={"num.partitons": 4}).start()
    with Cluster(memory=True) as one:
        with pytest.raises(RuntimeError, match="several brokers"):
            one.partition_network(1)
        with pytest.raises(RuntimeError, match="there is no broker 2"):
            one.stop(2)
        assert one.controller() == 1
        one.stop()
        with pytest.raises(RuntimeError, match="broker 1 is not running"):
            one.kill()
