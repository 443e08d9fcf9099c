"""A compacted topic with a remote tier against a model of a log that is not tiered.

Histories of writes, tombstones, transactions, new leader epochs, crashes and a store that fails.
Whatever was copied, cleaned and rewritten meanwhile: a reader from the start sees the last value of
each key at its original offset, records as they were written, and nothing of aborted transactions.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from ottla.metadata.records import PartitionChangeRecord
from ottla.records.record import build_batch
from ottla.sim.object_store import StoreFaults
from ottla.testing.fakes import START_MS
from ottla.wire.message import Message
from tests.support.tiered_broker import AWAY, TieredBroker
from tests.support.transactional_broker import codes_of, markers, produce

KEYS = "abcdef"
CONFIG = {
    "cleanup_policy": "compact",
    "delete_retention_ms": "300",
    "file_delete_delay_ms": "500",
    "internal_segment_bytes": "700",
    "local_retention_bytes": "300",
    "index_interval_bytes": "200",
    "segment_index_bytes": "2000",
}
FLAKY = StoreFaults(unavailable=0.1, lost=0.1, slow=0.3)
NO_FAULTS = StoreFaults()

keys = st.sampled_from(KEYS)
writes = st.lists(st.tuples(keys, st.booleans()), min_size=1, max_size=6)


class CompactedTier(RuleBasedStateMachine):
    """One broker, and what its topic has."""

    @initialize(ratio=st.sampled_from(("0.05", "0.6")))
    def begin(self, ratio: str) -> None:
        """Begin with each key. With a high ratio, there are more local cleans than remote ones."""
        self.broker = TieredBroker(
            log_cleaner_backoff_ms="300", transaction_partition_verification_enable="false"
        )
        self.broker.tiered_topic(min_cleanable_dirty_ratio=ratio, **CONFIG)
        self.client = self.broker.connect()
        self.written: dict[int, tuple[bytes, bytes | None]] = {}
        """Every record by offset, without those of aborted transactions."""
        self.sequences: dict[int, int] = {}
        self.number = self.lives = 0
        self.write([[(key, False)] for key in KEYS * 2])
        self.broker.work(2000)

    def _ask(self, request: Message, version: int | None = None) -> Any:
        """Send a request and return the response, which may have to wait for work in slices."""
        self.client.send(request, version)
        for _ in range(100):
            self.broker.node.settle()
            for _, response in self.client.replies():
                return response
            self.broker.pass_time(1)
        raise AssertionError("the request is not answered")

    def _records(self, some: list[tuple[str, bool]]) -> list[tuple[bytes, bytes | None]]:
        made = []
        for key, is_tombstone in some:
            self.number += 1
            value = None if is_tombstone else b"%d" % self.number
            made.append((key.encode(), value))
        return made

    def _produce(
        self, records: list[tuple[bytes, bytes | None]], producer_id: int = -1
    ) -> list[int]:
        """Write records in one batch; return their offsets."""
        log = self.broker.node.topics.partition_named("t", 0).online_log()
        start = log.log_end_offset
        batch = build_batch(
            [
                (key, value and value.ljust(60, b"_"), START_MS + start + delta, ())
                for delta, (key, value) in enumerate(records)
            ],
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=self.sequences.get(producer_id, 0) if producer_id >= 0 else -1,
            is_transactional=producer_id >= 0,
        )
        name = "id" if producer_id >= 0 else None
        response = self._ask(produce(batch, transactional_id=name), 11)
        assert codes_of(response) == [0]
        if producer_id >= 0:
            sequence = self.sequences.get(producer_id, 0) + len(records)
            self.sequences[producer_id] = sequence
        return list(range(start, log.log_end_offset))

    @rule(batches=st.lists(writes, min_size=1, max_size=6))
    def write(self, batches: list[list[tuple[str, bool]]]) -> None:
        for some in batches:
            records = self._records(some)
            self.written |= dict(zip(self._produce(records), records, strict=True))

    @rule(some=writes, more=writes, producer_id=st.sampled_from((7, 8)), commit=st.booleans())
    def transact(
        self,
        some: list[tuple[str, bool]],
        more: list[tuple[str, bool]],
        producer_id: int,
        commit: bool,
    ) -> None:
        """Write a transaction with something else in between, and end it."""
        first, others = self._records(some), self._records(more)
        offsets = self._produce(first, producer_id)
        self.written |= dict(zip(self._produce(others), others, strict=True))
        self._ask(markers(producer_id, commit=commit))
        if commit:
            self.written |= dict(zip(offsets, first, strict=True))

    @rule(duration_ms=st.sampled_from((100, 700, 3000)))
    def let_it_work(self, duration_ms: int) -> None:
        self.broker.work(duration_ms)

    @rule(steps=st.integers(1, 12))
    def let_it_begin(self, steps: int) -> None:
        """Let the store answer a few requests only."""
        for _ in range(steps):
            self.broker.pass_time(25)
            if self.broker.background.waiting:
                self.broker.background.waiting.pop(0)()
            self.broker.node.settle()

    @rule(faults=st.sampled_from((AWAY, FLAKY, NO_FAULTS, NO_FAULTS)))
    def change_the_store(self, faults: StoreFaults) -> None:
        self.broker.store.faults = faults

    @rule()
    def lead_in_a_new_epoch(self) -> None:
        """Lead anew, as after a fail over: tasks that are under way end."""
        partition = self.broker.node.topics.partition_named("t", 0)
        epoch, topic_id = partition.leader_epoch, partition.topic.topic_id
        change = PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1)
        self.broker.write_metadata(change)
        self.broker.node.settle()
        assert partition.leader_epoch == epoch + 1

    @precondition(lambda self: self.lives < 3)
    @rule()
    def crash(self) -> None:
        self.lives += 1
        before = self.broker
        self.broker = TieredBroker(
            before.store,
            before.node.ports.files,
            before.clock,
            log_cleaner_backoff_ms="300",
            transaction_partition_verification_enable="false",
        )
        self.broker.node.ports.random.ids = 1000 * self.lives  # type: ignore[attr-defined]
        self.client = self.broker.connect()
        self.broker.work(100)

    @rule()
    def check(self) -> None:
        self.broker.store.faults = NO_FAULTS
        self.broker.work(2500)  # what has failed is tried again
        found = self.broker.read(self.client, committed=True)
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets))
        for record in found:
            assert self.written[record.offset] == (record.key, record.value), record
        last = {key: offset for offset, (key, _) in sorted(self.written.items())}
        for key, offset in last.items():
            kept = [record.offset for record in found if record.key == key]
            if self.written[offset][1] is not None:
                assert kept[-1:] == [offset], f"{key!r} is last at {offset}, found at {kept}"
            else:
                assert not kept or kept[-1] == offset, f"{key!r} is back at {kept}"

    def teardown(self) -> None:
        if hasattr(self, "broker"):
            self.broker.store.faults = NO_FAULTS
            self.broker.work(8000)
            self.check()


TestCompactedTier = CompactedTier.TestCase
TestCompactedTier.settings = settings(max_examples=8, stateful_step_count=20, deadline=None)
