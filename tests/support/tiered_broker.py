"""A broker in memory with a remote tier in memory, whose answers tests can delay and spoil."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from ottla.controller.topics import NewTopic, create_topics
from ottla.ports import Buffer, Files, run_task
from ottla.records.batch import scan
from ottla.records.record import build_batch, records_of
from ottla.replication.partition import Partition
from ottla.sim.object_store import SimObjectStore, StoreFaults
from ottla.testing.fakes import START_MS, FakeClock, QueuedBackground
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.support.broker import Broker, Client
from tests.support.cleaner import Done, Seen
from tests.support.log import batch_of

AWAY = StoreFaults(unavailable=1.0)
TOPIC_CONFIG = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "1000",
    "local.retention.bytes": "1000",
    "file.delete.delay.ms": "0",
}


class LaterHelpers:
    """Does tasks when it is told to."""

    def __init__(self) -> None:
        self._waiting: list[tuple[str, Buffer, Done]] = []

    def submit(self, task: str, data: Buffer, done: Done, lane: str = "") -> None:
        self._waiting.append((task, data, done))

    def run(self) -> None:
        """Do all tasks that wait."""
        waiting, self._waiting = self._waiting, []
        for task, data, done in waiting:
            done(run_task(task, data))


class TieredBroker(Broker):
    """A broker whose store answers when `work` is called."""

    def __init__(
        self,
        store: SimObjectStore | None = None,
        files: Files | None = None,
        clock: FakeClock | None = None,
        **settings: str,
    ) -> None:
        self.background = QueuedBackground()
        self.store = SimObjectStore(self.background, Random(1))
        if store is not None:
            self.store.objects = store.objects
        self.object_store = self.store
        self.later_helpers = self.helpers = LaterHelpers()
        self.earlier_files = files
        tier = {
            "remote_log_storage_system_enable": "true",
            "remote_log_storage_url": "memory:",
            "remote_log_manager_task_interval_ms": "1000",
            "log_retention_check_interval_ms": "1000",
            "log_initial_task_delay_ms": "0",
        }
        super().__init__(clock, **{**tier, **settings})

    def tiered_topic(self, name: str = "t", **config: str) -> Partition:
        """Create a tiered topic of one partition with small segments; return the partition."""
        configs = {**TOPIC_CONFIG, **{key.replace("_", "."): v for key, v in config.items()}}
        errors: list[object] = []

        def decide(image: Any) -> Any:
            decision = yield from create_topics(
                image,
                self.node.config,
                self.node.ports.random,
                [NewTopic(name, 1, 1, configs=list(configs.items()))],
            )
            errors.extend(each.error for each in decision.results if each.error)
            return decision.records

        self.node.controller.decide(decide, lambda failure: None)
        self.node.settle()
        assert not errors, errors
        return self.node.topics.partition_named(name, 0)

    def pass_time(self, duration_ms: int) -> None:
        self.later_helpers.run()
        super().pass_time(duration_ms)

    def work(self, duration_ms: int = 3000) -> None:
        """Let time pass, a little at a time, and the store answer."""
        for _ in range(duration_ms // 25):
            self.pass_time(25)
            self.background.run()
            self.node.settle()

    def fill(self, client: Client, count: int, *, topic: str = "t", size: int = 300) -> None:
        """Write records of a size, each in a batch of its own, with rising timestamps."""
        from tests.support.transactional_broker import produce

        log = self.node.topics.partition_named(topic, 0).online_log()
        for _ in range(count):
            number = log.log_end_offset
            value = b"%08d" % number + b"x" * (size - 8)
            batch = batch_of(1, value=value, timestamp=START_MS + number)
            client.ask(produce(batch, transactional_id=None), 9)

    def write(
        self, client: Client, *records: tuple[str, str | None], topic: str = "t", size: int = 300
    ) -> None:
        """Write records with keys, each in a batch of its own, with rising timestamps."""
        from tests.support.transactional_broker import produce

        log = self.node.topics.partition_named(topic, 0).online_log()
        for key, value in records:
            content = None if value is None else value.encode().ljust(size, b"_")
            timestamp = START_MS + log.log_end_offset
            batch = build_batch([(key.encode(), content, timestamp, ())])
            client.ask(produce(batch, transactional_id=None), 9)

    @property
    def manifests(self) -> list[str]:
        """The keys of all manifests."""
        return sorted(key for key in self.store.objects if key.endswith(".manifest"))

    def consume(
        self, client: Client, offset: int = 0, *, committed: bool = False, upto: int | None = None
    ) -> list[int]:
        """Fetch from an offset to the end of the topic `t`; return the offsets of all records."""
        found: list[int] = []
        log = self.node.topics.partition_named("t", 0).online_log()
        end = log.high_watermark if upto is None else upto
        while offset < end:
            answer = self.fetch(client, offset, committed=committed)
            assert answer.error_code == 0, answer.error_code
            records = answer.records or b""
            for batch in scan(records, 0, len(records)):
                assert batch.next_offset > offset, "an old batch came again"
                found += range(max(batch.base_offset, offset), batch.next_offset)
                offset = batch.next_offset
        return found

    def read(self, client: Client, offset: int = 0, *, committed: bool = False) -> list[Seen]:
        """Fetch from an offset to the end of the topic `t`; return all records but control records.

        With `committed`, those of aborted transactions are left out, as consumers do.
        """
        found: list[Seen] = []
        end = self.node.topics.partition_named("t", 0).online_log().last_stable_offset
        first = offset
        while offset < end:
            answer = self.fetch(client, offset, committed=committed)
            assert answer.error_code == 0, answer.error_code
            content = answer.records or b""
            aborted = [(a.first_offset, a.producer_id) for a in answer.aborted_transactions or ()]
            for batch in scan(content, 0, len(content)):
                assert batch.next_offset > offset, "an old batch came again"
                offset = batch.next_offset
                started = [a for a in aborted if a[0] <= batch.base_offset]
                in_aborted = (batch.producer_id, batch.is_transactional) in [
                    (producer_id, True) for _, producer_id in started
                ]
                if batch.is_control:
                    ended = [a for a in started if a[1] == batch.producer_id]
                    if ended:
                        aborted.remove(min(ended))
                elif not in_aborted:
                    found += [
                        Seen(r.offset, r.key, r.value and r.value.rstrip(b"_"), r.timestamp)
                        for r in records_of(content[batch.position : batch.end])
                        if r.offset >= first
                    ]
            if not content:
                break
        return found

    def fetch(self, client: Client, offset: int, *, committed: bool = False, **fields: Any) -> Any:
        """Send a fetch, let the store answer, and return what is said about the partition."""
        client.send(self.fetch_request(offset, committed=committed, **fields))
        for _ in range(200):
            self.node.settle()
            replies = [response for _, response in client.replies()]
            if replies:
                ((partition,),) = [topic.partitions for topic in replies[0].responses]  # type: ignore[attr-defined]
                return partition
            self.pass_time(10)
            self.background.run()
        raise AssertionError("the fetch is not answered")

    def fetch_request(
        self, offset: int, *, committed: bool = False, max_bytes: int = 10_000, **fields: Any
    ) -> FetchRequest:
        topic = self.node.topics.named("t")
        assert topic is not None
        asked = FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=max_bytes, log_start_offset=-1
        )
        return FetchRequest(
            max_wait=500,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=int(committed),
            session_epoch=-1,
            topics=[FetchTopic(topic_id=topic.topic_id, partitions=[asked])],
            **fields,
        )

    def list_offset(self, client: Client, timestamp: int) -> tuple[int, int]:
        """Return the error code and the offset that ListOffsets gives for a timestamp."""
        asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])])
        client.send(request)
        for _ in range(200):
            self.node.settle()
            replies = [response for _, response in client.replies()]
            if replies:
                ((answer,),) = [topic.partitions for topic in replies[0].topics]  # type: ignore[attr-defined]
                return answer.error_code, answer.offset
            self.pass_time(10)
            self.background.run()
        raise AssertionError("the request is not answered")


def names(keys: Iterable[str]) -> set[str]:
    """Return the kinds of objects among keys."""
    return {key.rpartition(".")[2] for key in keys}
