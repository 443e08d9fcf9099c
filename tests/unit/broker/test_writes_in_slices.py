"""Requests that append to very many logs: writes take longer than appends, and count in slices."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.memory_files import MemoryFiles
from ottla.records.record import build_batch
from ottla.testing.fakes import START_MS, FakeClock
from ottla.testing.faulty_files import FaultyFiles
from ottla.wire.message import Message
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.support.broker import Broker
from tests.support.request_cost import cost_of
from tests.support.transactional_broker import markers

MANY = 600
WRITE_MS = 0.1
A_FEW = 45
"""The writes for which a slice has time, and those of one more step."""


class WritesTakeTime(FakeClock):
    """A clock that moves with each write to a file, and with nothing else."""

    def __init__(self, files: FaultyFiles) -> None:
        super().__init__()
        self._files = files

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + WRITE_MS * len(self._files.writes)


class OnFiles(Broker):
    """A broker on files that record their writes, with a topic of very many partitions."""

    def __init__(self) -> None:
        self.earlier_files = self.files = FaultyFiles(MemoryFiles())
        super().__init__(WritesTakeTime(self.files))
        topic = CreatableTopic(name="t", num_partitions=MANY, replication_factor=1)
        cost_of(self, CreateTopicsRequest(topics=[topic]), 7)


def produce_to_all() -> Message:
    records = bytes(build_batch([(None, b"v", START_MS, ())]))
    data = [PartitionProduceData(index=index, records=records) for index in range(MANY)]
    topic = TopicProduceData(name="t", partition_data=data)
    return ProduceRequest(acks=-1, timeout=1000, topic_data=[topic])


REQUESTS: dict[str, tuple[Callable[[], Message], int]] = {
    "markers": (lambda: markers(7, partitions={"t": list(range(MANY))}), 1),
    "produce": (produce_to_all, 12),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_wake_up_writes_to_a_few_logs(name: str) -> None:
    broker, (request, version) = OnFiles(), REQUESTS[name]
    client, writes = broker.connect(), broker.files.writes
    broker.pass_time(1)
    before = len(writes)
    client.send(request(), version)
    broker.node.settle()
    counts = [len(writes) - before]
    while not client.connection.out:
        before = len(writes)
        broker.pass_time(1)
        counts.append(len(writes) - before)
    assert max(counts) <= A_FEW
    assert sum(counts) == MANY
    logs = [broker.node.topics.partition_named("t", index).online_log() for index in range(MANY)]
    assert {log.high_watermark for log in logs} == {1}
