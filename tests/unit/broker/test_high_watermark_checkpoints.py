"""High watermarks in their checkpoint: soon after a write, and later if followers were late."""

from __future__ import annotations

from ottla.log.file_names import HIGH_WATERMARKS
from ottla.log.store.checkpoints import read_offsets
from ottla.model.ids import TopicPartition
from tests.support.broker import Broker, produce

PRODUCE = 12
CHECK_MS = 5_000
MINUTE_MS = 60_000
NAME = TopicPartition("t", 0)


def checkpointed(broker: Broker) -> int | None:
    return read_offsets(broker.node.ports.files, f"/data/{HIGH_WATERMARKS}").get(NAME)


def test_a_high_watermark_is_in_the_checkpoint_soon_after_the_write() -> None:
    broker = Broker()
    broker.topic()
    broker.pass_time(MINUTE_MS)
    broker.connect().ask(produce("t"), PRODUCE)
    assert checkpointed(broker) == 0
    broker.pass_time(CHECK_MS)
    assert checkpointed(broker) == 1


def test_one_that_moves_between_two_checks_is_written_with_the_next_one() -> None:
    broker = Broker()
    partition = broker.topic_with("t", leader_epoch=1, isr=(1, 2), replicas=(1, 2))
    broker.pass_time(MINUTE_MS)
    broker.connect().send(produce("t"), PRODUCE)
    broker.pass_time(CHECK_MS)
    assert checkpointed(broker) == 0
    partition.as_leader().record_fetch(2, 1, broker.node.monotonic_ms)
    broker.pass_time(CHECK_MS)
    assert checkpointed(broker) == 1


def test_one_that_moves_long_after_the_write_is_written_within_a_minute() -> None:
    broker = Broker()
    partition = broker.topic_with("t", leader_epoch=1, isr=(1, 2), replicas=(1, 2))
    broker.connect().send(produce("t"), PRODUCE)
    for _ in range(30):
        broker.pass_time(CHECK_MS)
    partition.as_leader().record_fetch(2, 1, broker.node.monotonic_ms)
    for _ in range(MINUTE_MS // CHECK_MS):
        broker.pass_time(CHECK_MS)
    assert checkpointed(broker) == 1
