"""A topic that is created again waits for the checkpoints in the background, not on the loop."""

from __future__ import annotations

import pytest

from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.memory_files import MemoryFiles
from ottla.model.steps import run_to_end
from ottla.testing.fakes import FakeClock, QueuedBackground, fake_ports
from ottla.testing.faulty_files import FaultyFiles
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from tests.support.broker import BROKER_ID, Broker, Client, produce

POINTS = "/data/recovery-point-offset-checkpoint"


class SlowDisk(Broker):
    """A broker whose work in the background is done when the test says so."""

    def __init__(self) -> None:
        config = BrokerConfig({"log.dirs": "/data", "node.id": str(BROKER_ID)})
        self.clock = FakeClock()
        self.files = FaultyFiles(MemoryFiles())
        self.background = QueuedBackground()
        endpoints = [
            each._replace(host="localhost") for each in config.network.advertised_listeners
        ]
        ports = fake_ports(files=self.files, clock=self.clock, background=self.background)
        self.node = Node(config, endpoints, ports)
        self.node.start()

    def checkpoints(self) -> int:
        """Return how often checkpoints were forced to disk."""
        return len([path for path in self.files.synced if path.startswith(POINTS)])

    def turn(self) -> None:
        """Have a wake-up, which must not write checkpoints, then work in the background."""
        before = self.checkpoints()
        self.pass_time(1)
        assert self.checkpoints() == before, "the loop has waited for the disk"
        self.background.run()

    def answer(self, client: Client) -> list[int]:
        """Work until there is an answer; return its error codes."""
        for _ in range(20):
            self.turn()
            if client.connection.out:
                ((_, response),) = client.replies()
                named = response.topics if hasattr(response, "topics") else response.responses  # type: ignore[attr-defined]
                return [each.error_code for each in named]
        raise AssertionError("no answer")


def create(broker: SlowDisk, client: Client) -> list[int]:
    topic = CreatableTopic(name="t", num_partitions=3, replication_factor=1)
    client.send(CreateTopicsRequest(topics=[topic]), 7)
    return broker.answer(client)


def delete(broker: SlowDisk, client: Client) -> list[int]:
    client.send(DeleteTopicsRequest(topic_names=["t"]), 5)
    return broker.answer(client)


def write_checkpoints(broker: SlowDisk) -> None:
    run_to_end(broker.node.store.write_checkpoints())
    broker.background.run()
    assert b"t 0 " in broker.files.inner.open(POINTS).pread(1000, 0)


@pytest.mark.parametrize("is_job_running", [False, True])
def test_the_loop_does_not_write_checkpoints(is_job_running: bool) -> None:
    broker = SlowDisk()
    client = broker.connect()
    assert create(broker, client) == [0]
    write_checkpoints(broker)
    if is_job_running:
        broker.connect().send(produce(), 12)
        broker.node.settle()
        run_to_end(broker.node.store.write_checkpoints())
    assert delete(broker, client) == [0]
    before = broker.checkpoints()

    assert create(broker, client) == [0]

    assert broker.checkpoints() > before
    assert b"t 0 " not in broker.files.inner.open(POINTS).pread(1000, 0)
    assert broker.node.topics.partition_named("t", 2).online_log().log_end_offset == 0


def test_checkpoints_that_cannot_be_written_hold_nobody_up() -> None:
    broker = SlowDisk()
    client = broker.connect()
    assert create(broker, client) == [0]
    write_checkpoints(broker)
    assert delete(broker, client) == [0]
    broker.files.fill(f"{POINTS}*")

    create(broker, client)

    broker.files.heal()
    broker.pass_time(1000)
    broker.background.run()
    assert broker.node.topics.partition_named("t", 0).online_log().log_end_offset == 0
