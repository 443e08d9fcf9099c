"""Replicas that move from one log directory of a broker to another."""

from __future__ import annotations

from errno import EIO

from ottla.broker.replicas.log_moves import CHECKED_AT_ONCE, MOST_PREFERRED
from ottla.log.log import Log
from ottla.log.store.log_store import parent_of
from ottla.metadata.records import ConfigRecord, PartitionChangeRecord
from ottla.model.config_resources import ResourceType
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.replication.partition import Partition
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.support.broker import Broker, produce

BATCHES = 200
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


def filled(rate: int | None = None) -> Broker:
    """Return a broker with two directories, and a topic "t" with batches in the first one."""
    broker = Broker(log_dirs="/one,/two")
    if rate is not None:
        limit(broker, str(rate))
    partition = broker.topic("t")
    assert parent_of(partition.online_log()) == "/one"
    write(broker, BATCHES)
    return broker


def limit(broker: Broker, rate: str | None) -> None:
    kind = ResourceType.BROKER
    broker.write_metadata(ConfigRecord(resource_type=kind, resource_name="", name=RATE, value=rate))


def write(broker: Broker, count: int) -> None:
    client = broker.connect()
    for _ in range(count):
        answer = client.ask(produce("t"), 12)
        assert answer.responses[0].partition_responses[0].error_code == 0


def move(broker: Broker, path: str, topic: str = "t", index: int = 0) -> int:
    asked = AlterReplicaLogDirTopic(name=topic, partitions=[index])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[asked])])
    answer = broker.connect().ask(request, 2)
    return int(answer.results[0].partitions[0].error_code)


def content(log: Log) -> bytes:
    piece = log.read(0, 1 << 20, log.log_end_offset, at_least_one=True)
    assert piece is not None
    return piece.file.pread(piece.length, piece.position)


def partition_of(broker: Broker) -> Partition:
    return broker.node.topics.partition_named("t", 0)


def restarted(broker: Broker) -> Broker:
    """Return a broker on the files of one that has crashed."""

    class Restarted(Broker):
        earlier_files = broker.node.ports.files

    return Restarted(log_dirs="/one,/two")


def pass_until_moved(broker: Broker, path: str) -> None:
    for _ in range(1000):
        if parent_of(partition_of(broker).online_log()) == path:
            return
        broker.pass_time(20)
    raise AssertionError("the log has not moved")


def futures(broker: Broker) -> list[str]:
    files = broker.node.ports.files
    return [
        entry.name
        for path in ("/one", "/two")
        for entry in files.list(path)
        if entry.name.endswith("-future")
    ]


def test_a_log_moves_with_all_its_records() -> None:
    broker = filled()
    old = partition_of(broker).online_log()
    before = content(old)
    assert move(broker, "/two") == 0
    assert len(futures(broker)) == 1
    write(broker, 3)
    pass_until_moved(broker, "/two")
    log = partition_of(broker).online_log()
    assert content(log)[: len(before)] == before
    assert (log.log_end_offset, log.high_watermark) == (BATCHES + 3, BATCHES + 3)
    assert futures(broker) == []
    write(broker, 2)
    assert log.log_end_offset == BATCHES + 5
    assert broker.node.store.get(log.topic_partition) is log
    assert not [each.name for each in broker.node.ports.files.list("/one") if each.name == "t-0"]


def test_a_move_is_described() -> None:
    broker = filled(1)
    assert move(broker, "/two") == 0
    broker.pass_time(1)
    results = broker.connect().ask(DescribeLogDirsRequest(topics=None), 4).results
    shown = {
        (result.log_dir, partition.is_future_key): partition
        for result in results
        for topic in result.topics
        for partition in topic.partitions
    }
    assert set(shown) == {("/one", False), ("/two", True)}
    future = shown["/two", True]
    log = partition_of(broker).online_log()
    assert future.offset_lag == BATCHES - future.partition_size // (log.size // BATCHES)
    assert shown["/one", False].partition_size == log.size


def test_the_bandwidth_of_moves_is_limited() -> None:
    broker = filled(1000)
    assert move(broker, "/two") == 0
    for _ in range(50):
        broker.pass_time(100)
    assert parent_of(partition_of(broker).online_log()) == "/one"
    pass_until_moved(broker, "/two")


def test_a_move_back_cancels() -> None:
    broker = filled(1)
    assert move(broker, "/two") == 0
    broker.pass_time(1)
    assert move(broker, "/one") == 0
    broker.pass_time(100_000)
    assert futures(broker) == []
    assert parent_of(partition_of(broker).online_log()) == "/one"


def test_what_cannot_be_moved() -> None:
    broker = filled()
    assert move(broker, "/three") == ErrorCode.LOG_DIR_NOT_FOUND
    assert move(broker, "/three", index=9) == ErrorCode.LOG_DIR_NOT_FOUND
    assert move(broker, "/two", topic="x") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.node.store.take_offline("/two", OSError(EIO, "on purpose"))
    assert move(broker, "/two") == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_replica_to_come_is_created_where_it_was_asked_for() -> None:
    broker = filled()
    index = broker.add_partition_elsewhere("t")
    assert move(broker, "/three", index=index) == ErrorCode.LOG_DIR_NOT_FOUND
    for path in ("/two", "/one"):  # the second is not the one with the fewest logs
        assert move(broker, path, index=index) == ErrorCode.REPLICA_NOT_AVAILABLE
    broker.write_metadata(
        PartitionChangeRecord(
            partition_id=index,
            topic_id=broker.node.image.topics["t"].topic_id,
            replicas=[2, broker.node.node_id],
        )
    )
    log = broker.node.store.get(TopicPartition("t", index))
    assert log is not None
    assert parent_of(log) == "/one"
    assert broker.node.store.preferred == {}


def test_only_so_many_directories_are_remembered() -> None:
    broker = filled()
    for index in range(MOST_PREFERRED + 1):
        broker.node.log_moves.prefer(TopicPartition("t", index), "/two")
    preferred = broker.node.store.preferred
    assert len(preferred) == MOST_PREFERRED
    assert TopicPartition("t", 0) not in preferred


class Lookups(dict[str, object]):
    """Log directories that count how often somebody asks for one."""

    count = 0

    def __contains__(self, path: object) -> bool:
        self.count += 1
        return super().__contains__(path)


def test_a_step_does_not_look_at_all_moves() -> None:
    """Thousands of replicas may move, and a step comes ten thousand times a second."""
    broker = Broker(log_dirs="/one,/two")
    limit(broker, "1")
    for number in range(100):
        broker.topic(f"t{number}")
        path = "/two" if number % 2 == 0 else "/one"
        assert move(broker, path, topic=f"t{number}") == 0
    assert len(broker.node.log_moves.moves) == 100
    for number in range(100):
        broker.connect().ask(produce(f"t{number}"), 12)
    directories = Lookups(broker.node.store.directories)
    broker.node.store.directories = directories  # type: ignore[assignment]
    broker.pass_time(100)
    assert 1 <= directories.count <= 2 * CHECKED_AT_ONCE


def test_a_deleted_topic_ends_its_move() -> None:
    broker = filled(1)
    assert move(broker, "/two") == 0
    broker.pass_time(1)
    partition_of(broker).remove()
    broker.pass_time(2000)
    assert futures(broker) == []


def test_an_interrupted_move_begins_anew() -> None:
    broker = filled(1)
    assert move(broker, "/two") == 0
    broker.pass_time(1)
    again = restarted(broker)
    limit(again, None)
    pass_until_moved(again, "/two")
    assert partition_of(again).online_log().log_end_offset == BATCHES


def test_a_copy_takes_the_place_of_a_log_that_is_gone() -> None:
    broker = filled()
    log = partition_of(broker).online_log()
    files = broker.node.ports.files
    files.rename("/one/t-0", "/two/t-0.0123456789abcdef0123456789abcdef-future")
    again = restarted(broker)
    moved = partition_of(again).online_log()
    assert parent_of(moved) == "/two"
    assert moved.log_end_offset == log.log_end_offset == BATCHES
