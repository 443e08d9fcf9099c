"""A member by aiokafka, in the classic protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaConnectionError, KafkaError

from tests.harness.member.progress import Progress
from tests.harness.member.report import Key, Reporter
from tests.harness.member.spec import Spec

POLL_MS = 50
START_ATTEMPTS = 150
START_PAUSE_S = 0.2
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


def run(spec: Spec, reporter: Reporter, stop: Callable[[], bool]) -> None:
    asyncio.run(_live(spec, reporter, stop))


async def _live(spec: Spec, reporter: Reporter, stop: Callable[[], bool]) -> None:
    await Member(spec, reporter).run(stop)


class Member(ConsumerRebalanceListener):  # type: ignore[misc]  # untyped
    def __init__(self, spec: Spec, reporter: Reporter) -> None:
        self._spec = spec
        self._reporter = reporter
        self._progress = Progress()
        # A rebalance is a task of its own here: it waits until what was polled is committed.
        self._turning = asyncio.Lock()
        self._consumer = self._new_consumer()

    def _new_consumer(self) -> AIOKafkaConsumer:
        spec = self._spec
        return AIOKafkaConsumer(
            bootstrap_servers=spec.bootstrap_servers,
            group_id=spec.group,
            group_instance_id=spec.instance_id,
            client_id=spec.client_id,
            auto_offset_reset="earliest",
            enable_auto_commit=not spec.commits,
            auto_commit_interval_ms=100,
            session_timeout_ms=spec.session_timeout_ms,
            heartbeat_interval_ms=spec.heartbeat_interval_ms,
            max_poll_interval_ms=spec.max_poll_interval_ms,
            rebalance_timeout_ms=spec.max_poll_interval_ms,
            fetch_max_wait_ms=50,
            metadata_max_age_ms=500,
            partition_assignment_strategy=[ASSIGNORS[spec.assignor or "roundrobin"]],
        )

    async def run(self, stop: Callable[[], bool]) -> None:
        await self._start()
        while not stop():
            await self._turn()
        # aiokafka leaves without telling its listener.
        owned = [(key.topic, key.partition) for key in self._consumer.assignment()]
        self._reporter.revoked(owned, lost=False)
        await self._consumer.stop()
        self._reporter.closed()

    async def _start(self) -> None:
        """Connect; other than its rivals, aiokafka gives up where the broker is not there yet."""
        for attempts_left in reversed(range(START_ATTEMPTS)):
            if self._spec.pattern is not None:
                self._consumer.subscribe(pattern=self._spec.pattern, listener=self)
            else:
                self._consumer.subscribe(topics=list(self._spec.topics), listener=self)
            try:
                await self._consumer.start()
                return
            except KafkaConnectionError:
                await self._consumer.stop()
                if not attempts_left:
                    raise
            await asyncio.sleep(START_PAUSE_S)
            self._consumer = self._new_consumer()

    async def _turn(self) -> None:
        polled = await self._consumer.getmany(timeout_ms=POLL_MS, max_records=self._spec.batch)
        offsets = {
            (key.topic, key.partition): [record.offset for record in records]
            for key, records in polled.items()
            if records
        }
        if not offsets:
            return
        async with self._turning:
            await asyncio.sleep(self._spec.work_ms / 1000)
            self._reporter.got(offsets)
            self._progress.processed(offsets)
            await self._commit(self._progress.to_commit())

    async def _commit(self, offsets: dict[Key, int]) -> None:
        if not offsets or not self._spec.commits:
            return
        try:
            await self._consumer.commit(
                {TopicPartition(*key): offset for key, offset in offsets.items()}
            )
        except KafkaError as error:
            self._reporter.failed("commit", error)
        else:
            self._progress.committed(offsets)
            self._reporter.committed(offsets)

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self._reporter.assigned(_keys(assigned), self._consumer._coordinator.generation)

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        async with self._turning:
            self._progress.forget(_keys(revoked))
            self._reporter.revoked(_keys(revoked), lost=False)


def _keys(partitions: list[TopicPartition]) -> list[Key]:
    return [(partition.topic, partition.partition) for partition in partitions]
