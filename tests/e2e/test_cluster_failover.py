"""Three real processes: the coordinator of a group is killed, and its consumers go on."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

NODES = (1, 2, 3)
PARTITIONS = 4
MESSAGES = 400
DEADLINE_S = 60


class Processes:
    """Brokers 1 to 3 of one cluster."""

    def __init__(self, directory: Path) -> None:
        ports = free_ports(2 * len(NODES))
        voters = ",".join(f"{n}@127.0.0.1:{ports[n + 2]}" for n in NODES)
        self.bootstrap = ",".join(f"127.0.0.1:{ports[n - 1]}" for n in NODES)
        self._processes = {}
        for number in NODES:
            config = directory / f"{number}.properties"
            config.write_text(
                f"node.id={number}\n"
                "process.roles=broker,controller\n"
                "cluster.id=failover-cluster-00000\n"
                f"listeners=PLAINTEXT://127.0.0.1:{ports[number - 1]},"
                f"CONTROLLER://127.0.0.1:{ports[number + 2]}\n"
                "controller.listener.names=CONTROLLER\n"
                f"controller.quorum.voters={voters}\n"
                f"log.dirs={directory / str(number)}\n"
                "offsets.topic.replication.factor=3\n"
                "offsets.topic.num.partitions=3\n"
                "group.initial.rebalance.delay.ms=0\n"
            )
            command = [sys.executable, "-m", "ottla.cli.main", "broker", "--config", str(config)]
            with (directory / f"{number}.log").open("w") as log:
                self._processes[number] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, number: int) -> None:
        self._processes[number].kill()
        self._processes[number].wait()

    def close(self) -> None:
        for number in NODES:
            self.kill(number)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(tmp_path)
    yield processes
    processes.close()


class Reader:
    """A consumer that commits every message, and what it has seen."""

    def __init__(self, bootstrap: str, protocol: str, seen: Counter[tuple[int, int]]) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "readers",
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self.consumer.subscribe(["t"])
        self.committed: dict[int, int] = {}
        self._seen = seen

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is None or message.error() is not None:
            return
        self._seen[message.partition() or 0, message.offset() or 0] += 1
        self._commit(message)

    def _commit(self, message: Message) -> None:
        try:
            for done in self.consumer.commit(message=message, asynchronous=False):
                if done.error is None:
                    assert done.offset > self.committed.get(done.partition, -1)
                    self.committed[done.partition] = done.offset
        except KafkaException:
            pass  # the coordinator is away; the next commit covers this one


def wait_for_brokers(admin: AdminClient) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            if len(admin.list_topics(timeout=1).brokers) == len(NODES):
                return
        except KafkaException:
            continue
    raise AssertionError("the brokers did not form a cluster")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consumers_survive_their_coordinator(cluster: Processes, protocol: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    wait_for_brokers(admin)
    for created in admin.create_topics([NewTopic("t", PARTITIONS, len(NODES))]).values():
        created.result(DEADLINE_S)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0}
    )
    seen: Counter[tuple[int, int]] = Counter()
    readers = [Reader(cluster.bootstrap, protocol, seen) for _ in range(2)]
    deadline = time.monotonic() + DEADLINE_S
    sent = 0
    is_killed = False
    while len(seen) < MESSAGES:
        assert time.monotonic() < deadline, f"{len(seen)} of {sent} messages were read"
        if sent < MESSAGES and sent < len(seen) + 50:
            producer.produce("t", str(sent), partition=sent % PARTITIONS)
            producer.poll(0)
            sent += 1
        for reader in readers:
            reader.poll()
        if not is_killed and len(seen) > MESSAGES // 2 and all(r.committed for r in readers):
            described = admin.describe_consumer_groups(["readers"])["readers"].result(DEADLINE_S)
            cluster.kill(described.coordinator.id)
            is_killed = True
    assert is_killed
    assert producer.flush(DEADLINE_S) == 0
    owned = [{each.partition for each in reader.consumer.assignment()} for reader in readers]
    assert owned[0].isdisjoint(owned[1])
    assert {partition for partition, _ in seen} == set(range(PARTITIONS))
    for reader in readers:
        reader.consumer.close()
