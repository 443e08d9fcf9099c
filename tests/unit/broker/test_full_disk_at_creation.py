"""A topic made while the disk is full gets its logs once there is room."""

from __future__ import annotations

from errno import ENOSPC

from ottla.broker.auto_topic_creation import auto_create
from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.config.listeners import Endpoint
from ottla.memory_files import MemoryFiles
from ottla.testing.fakes import FakeClock, fake_ports
from ottla.testing.faulty_files import FaultyFiles


def test_logs_that_found_no_room_are_made_when_there_is_some() -> None:
    files, clock, said = FaultyFiles(MemoryFiles()), FakeClock(), list[str]()
    ports = fake_ports(files, clock, report=said.append)
    node = Node(
        BrokerConfig({"log.dirs": "/data", "num.partitions": "3"}),
        [Endpoint("PLAINTEXT", "127.0.0.1", 9092)],
        ports,
    )
    node.start()
    files.fail("create", OSError(ENOSPC, "no space left"), path="*/t-*")
    auto_create(node, ["t"], lambda errors: None)
    node.settle()
    partitions = node.topics.by_key[b"t"].partitions
    assert [partition.log for partition in partitions.values()] == [None] * 3
    made = []
    node.hosted_logs.on_log_made.append(lambda partition: made.append(partition.index))

    def pass_seconds(seconds: int) -> None:
        for _ in range(seconds):
            clock.now_ms += 1000
            node.advance()

    pass_seconds(5)
    assert made == []
    assert len([message for message in said if "no log could be made" in message]) == 3
    files.heal()
    pass_seconds(2)
    assert made == [0, 1, 2]
    assert all(partition.log is not None for partition in partitions.values())
