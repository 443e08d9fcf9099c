"""A tiered topic on three brokers that crash, with a store that fails.

Whatever was acknowledged is read back from both parts of the log, once and in order. In the end
the store has no objects that nobody knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from ottla.log.log import Log
from ottla.model.errors import ErrorCode
from ottla.records.batch import scan
from ottla.records.record import build_batch, records_of
from ottla.replication.partition import Partition
from ottla.sim.cluster import SimCluster
from ottla.sim.object_store import SharedObjects, StoreFaults
from ottla.tiered.metadata_records import SegmentState
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.sim.test_membership import unfenced
from tests.sim.test_quorum_of_several import NODES, active

TOPIC = "t"
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.url": "memory:",
    "remote.log.manager.task.interval.ms": "300",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "50",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
    "replica.lag.time.max.ms": "3000",
}
TOPIC_CONFIG = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "700",
    "local.retention.bytes": "900",
    "file.delete.delay.ms": "0",
    "min.insync.replicas": "2",
    "flush.messages": "1",
}
BAD = (StoreFaults(unavailable=1.0), StoreFaults(0.2, 0.2, 0.3, 0.3), StoreFaults())


NO_SETTINGS: Mapping[str, str] = {}


class TieredCluster:
    """The cluster, and what it has acknowledged."""

    def __init__(
        self,
        seed: int,
        topic_config: Mapping[str, str] = TOPIC_CONFIG,
        settings: Mapping[str, str] = NO_SETTINGS,
    ) -> None:
        self.chance = Random(seed)
        self.store = SharedObjects(Random(seed + 1))
        properties = {**SETTINGS, **settings}
        self.cluster = SimCluster(3, seed, properties, are_one_cluster=True, remote_tier=self.store)
        self.down: set[int] = set()
        self.written = 0
        self.acknowledged: dict[int, bytes] = {}
        cluster = self.cluster
        cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES))
        controller = active(cluster)
        assert controller is not None
        configs = [CreatableTopicConfig(name=k, value=v) for k, v in topic_config.items()]
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=3, configs=configs)
        request = CreateTopicsRequest(topics=[topic], timeout=10_000)
        response = cluster.ask(controller, request, 7)
        assert [each.error_code for each in response.topics] == [0]  # type: ignore[attr-defined]
        self.settle()

    # -- who leads -----------------------------------------------------------------------

    def partition(self, number: int) -> Partition | None:
        topic = self.cluster.node(number).topics.named(TOPIC)
        return None if topic is None else topic.partitions.get(0)

    def leader(self) -> int | None:
        """Return the running broker with the newest leader epoch, None while there is none."""
        found = []
        for number in self.running:
            partition = self.partition(number)
            if partition is not None and partition.leader is not None and partition.log:
                found.append((partition.leader_epoch, number))
        return max(found)[1] if found else None

    @property
    def running(self) -> list[int]:
        return [n for n in NODES if n not in self.down and not self.cluster.is_paused(n)]

    @property
    def log(self) -> Log:
        leader = self.leader()
        assert leader is not None
        partition = self.partition(leader)
        assert partition is not None
        return partition.online_log()

    # -- what happens --------------------------------------------------------------------

    def produce(self) -> None:
        """Write a record; note it if it is acknowledged."""
        leader = self.leader()
        if leader is None:
            self.cluster.run_for(500)
            return
        self.written += 1
        value = b"%d" % self.written * 20
        answer = self.write(leader, None, value)
        if answer.error_code == 0:
            assert answer.base_offset not in self.acknowledged
            self.acknowledged[answer.base_offset] = value

    def write(self, leader: int, key: bytes | None, value: bytes | None) -> Any:
        """Send a record to a leader and return its answer."""
        now_ms = self.cluster.machine(leader).clock.wall_ms()
        batch = bytes(build_batch([(key, value, now_ms, ())]))
        data = PartitionProduceData(index=0, records=batch)
        topic = TopicProduceData(name=TOPIC, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout=2000, topic_data=[topic])
        response = self.cluster.ask(leader, request, 9)
        (answer,) = response.responses[0].partition_responses  # type: ignore[attr-defined]
        return answer

    def step(self) -> None:
        action = self.chance.random()
        if action < 0.1:
            self.store.set_faults(self.chance.choice(BAD))
        elif action < 0.2 and not self.down and len(self.running) == 3:
            victim = self.chance.choice(NODES)
            if self.chance.random() < 0.4:
                self.cluster.pause(victim)
            else:
                (self.cluster.kill if self.chance.random() < 0.6 else self.cluster.lose_power)(
                    victim
                )
                self.down.add(victim)
            self.cluster.run_for(self.chance.choice((100, 12_000)))
        elif action < 0.35:
            self.bring_back()
        elif action < 0.8:
            for _ in range(self.chance.choice((1, 5, 15))):
                self.produce()
        else:
            self.cluster.run_for(self.chance.choice((50, 500, 3000)))

    def bring_back(self) -> None:
        for number in NODES:
            if number in self.down:
                self.cluster.start(number)
                self.down.discard(number)
            elif self.cluster.is_paused(number):
                self.cluster.resume(number)

    def settle(self) -> None:
        """Wait until all brokers run and all replicas are in sync."""
        self.bring_back()
        self.store.set_faults(StoreFaults())
        self.cluster.run_until(self._is_in_sync, 300_000)

    def _is_in_sync(self) -> bool:
        leader = self.leader()
        if leader is None:
            return False
        partition = self.partition(leader)
        assert partition is not None
        log = partition.log
        return (
            partition.leader is not None
            and set(partition.leader.isr) == set(NODES)
            and log is not None
            and log.high_watermark == log.written_end
        )

    # -- checks --------------------------------------------------------------------------

    def fetch(self, number: int, offset: int) -> bytes:
        """Return some batches from an offset on; none if the store has failed."""
        topic_id = self.cluster.node(number).image.topics[TOPIC].topic_id
        asked = FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=2000, log_start_offset=-1
        )
        request = FetchRequest(
            max_wait=500, min_bytes=1, max_bytes=2000, session_epoch=-1,
            topics=[FetchTopic(topic_id=topic_id, partitions=[asked])],
        )  # fmt: skip
        response = self.cluster.ask(number, request, 13)
        (answer,) = response.responses[0].partitions  # type: ignore[attr-defined]
        if answer.error_code:
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR, answer.error_code
        return answer.records or b""

    def consume(self) -> dict[int, bytes]:
        """Read the whole log from its leader."""
        offset, found = self.log.log_start_offset, dict[int, bytes]()
        attempts = 0
        while offset < self.log.high_watermark:
            leader = self.leader()
            assert leader is not None
            records = self.fetch(leader, offset)
            before = offset
            for batch in scan(records, 0, len(records)):
                for record in records_of(records[batch.position : batch.end]):
                    if record.offset >= offset and record.value is not None:
                        found[record.offset] = record.value
                offset = batch.next_offset
            attempts = 0 if offset > before else attempts + 1
            assert attempts < 50, f"nothing comes at offset {offset}"
        return found

    def check(self) -> None:
        """Check that everything acknowledged is there, and the store tidy."""
        self.settle()
        found = self.consume()
        assert list(found) == sorted(found)
        lost = {o: v for o, v in self.acknowledged.items() if found.get(o) != v}
        assert not lost, f"lost: {sorted(lost)}; log {self.log!r}"

    def check_store(self) -> None:
        """Check that every object is of a readable segment, and every segment whole."""
        self.settle()
        for _ in range(20):
            self.cluster.run_until(self._is_copied, 300_000)
            self.cluster.run_for(10_000)
            if self._is_copied():
                break
        leader = self.leader()
        assert leader is not None
        tier, partition = self.cluster.node(leader).tier, self.partition(leader)
        assert tier is not None
        assert partition is not None
        segments = tier.partitions[partition].segments
        assert segments is not None
        states = {each.state for each in segments.segments.values()}
        assert states == {SegmentState.COPY_FINISHED}, states
        names = (key.rpartition("/")[2] for key in self.store.objects)
        known = {name.partition(".")[0] for name in names if name != "log-start-offset"}
        manifests = {key for key in self.store.objects if key.endswith(".manifest")}
        assert len(known) == len(manifests) == len(segments.segments)

    def _is_copied(self) -> bool:
        leader = self.leader()
        return leader is not None and self.log.highest_remote_offset >= (
            self.log.active.base_offset - 1
        )


class ClusterWithDeletions(TieredCluster):
    """The same, and somebody deletes records up to any offset now and then."""

    deleted_to = 0

    def step(self) -> None:
        if self.chance.random() < 0.2:
            self.delete_records()
        super().step()

    def delete_records(self) -> None:
        leader = self.leader()
        if leader is None:
            return
        log = self.log
        offset = self.chance.randint(log.log_start_offset, log.high_watermark)
        asked = DeleteRecordsPartition(partition_index=0, offset=offset)
        topic = DeleteRecordsTopic(name=TOPIC, partitions=[asked])
        self.cluster.ask(leader, DeleteRecordsRequest(topics=[topic], timeout=1000), 2)
        self.deleted_to = max(self.deleted_to, offset)
        self.acknowledged = {o: v for o, v in self.acknowledged.items() if o >= self.deleted_to}


def run(seed: int, steps: int = 40, kind: type[TieredCluster] = TieredCluster) -> TieredCluster:
    case = kind(seed)
    for number in range(steps):
        case.step()
        if number % 20 == 19:
            case.check()
    for _ in range(10):
        case.produce()
    case.check()
    case.check_store()
    return case


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost(seed: int) -> None:
    case = run(seed)
    assert len(case.acknowledged) > 30


@pytest.mark.parametrize("seed", range(100, 104))
def test_records_that_are_deleted_do_not_stop_copies(seed: int) -> None:
    run(seed, kind=ClusterWithDeletions)


@pytest.mark.parametrize(
    "seed",
    [
        13,  # a log was opened before its topic was known to be tiered
        19,  # a leader that was paused has uploaded what another one had given up
        48,  # a segment was missing in metadata of which not everything was read
    ],
)
def test_seeds_that_have_found_something(seed: int) -> None:
    run(seed, 60)
