"""Log directories that fail: the broker lives as long as one is left."""

from __future__ import annotations

from errno import EIO

import pytest

from ottla.broker.auto_topic_creation import auto_create
from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.log.damage import LogDirsFailed
from ottla.log.store.log_store import parent_of
from ottla.memory_files import MemoryFiles
from ottla.model.errors import ApiError, ErrorCode
from ottla.server.broker_process import Broker as BrokerProcess
from ottla.testing.fakes import FakeClock, fake_ports
from ottla.testing.faulty_files import FaultyFiles
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.broker import BROKER_ID, Broker, produce

FAILED = OSError(EIO, "on purpose")


def codes(broker: Broker, topic: str) -> list[int]:
    answer = broker.connect().ask(produce(topic), 12)
    return [each.error_code for each in answer.responses[0].partition_responses]


def test_the_broker_ends_with_its_last_log_directory() -> None:
    broker = Broker(log_dirs="/one,/two")
    partitions = [broker.topic(name) for name in ("a", "b")]
    second, first = (parent_of(partition.online_log()) for partition in partitions)
    assert (first, second) == ("/two", "/one")  # the metadata is in the first one
    broker.node.store.take_offline(first, FAILED)
    broker.pass_time(1000)
    assert codes(broker, "b") == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert codes(broker, "a") == [ErrorCode.NONE]
    broker.node.store.take_offline(second, FAILED)
    assert codes(broker, "a") == [ErrorCode.KAFKA_STORAGE_ERROR]  # those under way are answered
    with pytest.raises(LogDirsFailed) as ended:
        broker.pass_time(0)
    assert str(ended.value) == "Shutdown broker because all log dirs in /one, /two have failed"


def test_the_process_says_why_it_ends() -> None:
    reports: list[str] = []
    process = BrokerProcess(
        {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": "/one"},
        memory=True,
        report=reports.append,
    )
    process.open()
    node = process._node
    assert node is not None
    node.timers.at(0, lambda: node.store.take_offline("/one", FAILED))
    with pytest.raises(LogDirsFailed):
        process.serve()
    process.abandon()
    assert reports[-1] == "Shutdown broker because all log dirs in /one have failed"
    assert not [text for text in reports if "Traceback" in text]


def test_the_broker_ends_with_the_directory_of_its_metadata() -> None:
    broker = Broker(log_dirs="/one,/two")
    broker.topic("a")
    broker.node.store.take_offline("/one", FAILED)
    with pytest.raises(LogDirsFailed) as ended:
        broker.pass_time(0)
    assert str(ended.value) == "Shutdown broker because the metadata log dir /one has failed"


def test_the_broker_ends_if_its_metadata_cannot_be_repaired() -> None:
    files = FaultyFiles(MemoryFiles())
    broker: Broker = Started(files)
    broker.topic("a")
    files.fail("sync", FAILED, path="/one/__cluster_metadata-0/*")
    files.fail("truncate", FAILED, path="/one/__cluster_metadata-0/*")
    refused: list[dict[str, ApiError]] = []
    auto_create(broker.node, ["b"], lambda errors: refused.append(dict(errors)))
    broker.node.settle()
    assert refused[0]["b"].code == ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(LogDirsFailed) as ended:
        broker.pass_time(0)
    assert str(ended.value) == "Shutdown broker because the metadata log dir /one has failed"


def leaders(broker: Broker, topic: str) -> list[tuple[int, int]]:
    """Return the leader of each partition that Metadata names, and the error code."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    (answer,) = broker.connect().ask(request, 12).topics
    return [(each.leader_id, each.error_code) for each in answer.partitions]


def test_nobody_leads_the_partitions_of_a_lost_directory() -> None:
    broker = Broker(log_dirs="/one,/two")
    lost, kept = (broker.topic(name) for name in ("a", "b"))
    if parent_of(lost.online_log()) == "/one":
        lost, kept = kept, lost
    epoch = lost.leader_epoch

    broker.node.store.take_offline("/two", FAILED)
    broker.pass_time(10)

    assert leaders(broker, lost.topic.name) == [(-1, ErrorCode.LEADER_NOT_AVAILABLE)]
    assert leaders(broker, kept.topic.name) == [(BROKER_ID, ErrorCode.NONE)]
    assert codes(broker, lost.topic.name) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert lost.leader_epoch == epoch + 1
    isr = broker.node.image.topics[lost.topic.name].partitions[0].isr
    assert isr == (BROKER_ID,)  # it has all records, and leads again when they are back


class Started(Broker):
    """A broker on files that other brokers had before."""

    def __init__(self, files: FaultyFiles) -> None:
        config = BrokerConfig({"log.dirs": "/one,/two", "node.id": str(BROKER_ID)})
        self.clock = FakeClock()
        endpoints = [
            each._replace(host="localhost") for each in config.network.advertised_listeners
        ]
        self.node = Node(config, endpoints, fake_ports(files=files, clock=self.clock))
        self.node.start()


def test_a_broker_leads_again_when_its_directory_is_back() -> None:
    files = FaultyFiles(MemoryFiles())
    broker: Broker = Started(files)
    names = [f"t{number}" for number in range(4)]
    for name in names:
        broker.topic(name)
        assert codes(broker, name) == [ErrorCode.NONE]
    broker.node.shutdown()

    files.fail("list", FAILED, path="/two")
    broker = Started(files)
    lost = [name for name in names if leaders(broker, name) != [(BROKER_ID, ErrorCode.NONE)]]
    assert len(lost) == 2
    for name in lost:
        assert leaders(broker, name) == [(-1, ErrorCode.LEADER_NOT_AVAILABLE)]
        assert codes(broker, name) == [ErrorCode.KAFKA_STORAGE_ERROR]
    broker.node.shutdown()

    files.heal()
    broker = Started(files)
    for name in names:
        assert leaders(broker, name) == [(BROKER_ID, ErrorCode.NONE)]
        assert codes(broker, name) == [ErrorCode.NONE]
        assert broker.node.topics.partition_named(name, 0).online_log().log_end_offset == 2
