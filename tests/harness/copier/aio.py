"""A copier of one partition with aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import confluent_kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced
from confluent_kafka import Consumer, KafkaException

from tests.harness.copier.spec import FAILED, FENCED, STOPPED, CopierSpec
from tests.harness.copier.watchdog import Watchdog


def run(spec: CopierSpec, is_stopping: Callable[[], bool]) -> int:
    """Copy until it is told to stop, or cannot go on. Return the exit code."""
    try:
        asyncio.run(_run(spec, is_stopping))
    except ProducerFenced as error:
        print(error, flush=True)
        return FENCED
    except (KafkaError, KafkaException, TimeoutError) as error:
        print(repr(error), flush=True)
        return FAILED
    return STOPPED


async def _run(spec: CopierSpec, is_stopping: Callable[[], bool]) -> None:
    watchdog = Watchdog()
    producer = AIOKafkaProducer(
        bootstrap_servers=spec.servers,
        transactional_id=spec.transactional_id,
        transaction_timeout_ms=spec.transaction_timeout_ms,
        request_timeout_ms=5_000,
    )
    consumer = AIOKafkaConsumer(
        bootstrap_servers=spec.servers,
        group_id=spec.group,
        enable_auto_commit=False,
        isolation_level="read_committed",
        request_timeout_ms=5_000,
    )
    await producer.start()
    try:
        await consumer.start()
        await _copy_all(spec, producer, consumer, watchdog, is_stopping)
    finally:
        await consumer.stop()
        await producer.stop()


async def _copy_all(
    spec: CopierSpec,
    producer: AIOKafkaProducer,
    consumer: AIOKafkaConsumer,
    watchdog: Watchdog,
    is_stopping: Callable[[], bool],
) -> None:
    place = TopicPartition(spec.source, spec.partition)
    consumer.assign([place])
    # The transaction of the copier before has ended with this. So its offsets are known then.
    await producer.begin_transaction()
    offset = await consumer.committed(place)
    if offset is None:
        offset = await asyncio.to_thread(_committed, spec)
    consumer.seek(place, offset)
    while not is_stopping():
        watchdog.step()
        found = await consumer.getmany(timeout_ms=200, max_records=spec.records)
        for message in found.get(place, ()):
            await producer.send(
                spec.target, message.value, key=message.key, partition=message.partition
            )
            offset = message.offset + 1
        if found:
            await _commit(producer, place, offset, spec.group)
            await asyncio.sleep(spec.pause_s)
    await producer.abort_transaction()


def _committed(spec: CopierSpec) -> int:
    """Ask another client where to begin.

    aiokafka takes the error of a coordinator of Kafka that loads its groups for an answer: it says
    that nothing was committed.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": spec.servers,
            "group.id": spec.group,
            "isolation.level": "read_committed",
            "socket.timeout.ms": 3_000,
        }
    )
    assert spec.partition is not None
    place = confluent_kafka.TopicPartition(spec.source, spec.partition)
    (found,) = consumer.committed([place], timeout=20)
    consumer.close()
    return max(0, found.offset)


async def _commit(
    producer: AIOKafkaProducer, place: TopicPartition, offset: int, group: str
) -> None:
    await producer.send_offsets_to_transaction({place: offset}, group)
    await producer.commit_transaction()
    await producer.begin_transaction()
