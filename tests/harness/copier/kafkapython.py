"""A copier of one partition with kafka-python."""

from __future__ import annotations

import time
from collections.abc import Callable

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError
from kafka.structs import OffsetAndMetadata

from tests.harness.copier.spec import FAILED, FENCED, STOPPED, CopierSpec
from tests.harness.copier.watchdog import Watchdog

_FAST_RETRIES = {
    "bootstrap_timeout_ms": 3_000,  # it waits so long for a paused broker, and then gives up
    "request_timeout_ms": 5_000,
    "reconnect_backoff_ms": 20,
    "reconnect_backoff_max_ms": 200,
}


def run(spec: CopierSpec, is_stopping: Callable[[], bool]) -> int:
    """Copy until it is told to stop, or cannot go on. Return the exit code."""
    try:
        _run(spec, is_stopping)
    except (ProducerFencedError, InvalidProducerEpochError) as error:
        print(error, flush=True)
        return FENCED
    except (KafkaError, AssertionError) as error:
        print(repr(error), flush=True)
        return FAILED
    return STOPPED


def _run(spec: CopierSpec, is_stopping: Callable[[], bool]) -> None:
    watchdog = Watchdog()
    producer = KafkaProducer(
        bootstrap_servers=spec.servers,
        transactional_id=spec.transactional_id,
        transaction_timeout_ms=spec.transaction_timeout_ms,
        delivery_timeout_ms=20_000,
        **_FAST_RETRIES,
    )
    # The transaction of the copier before ends here. So its offsets are known afterwards.
    producer.init_transactions()
    consumer = KafkaConsumer(
        bootstrap_servers=spec.servers,
        group_id=spec.group,
        enable_auto_commit=False,
        isolation_level="read_committed",
        **_FAST_RETRIES,
    )
    place = TopicPartition(spec.source, spec.partition)
    consumer.assign([place])
    consumer.seek(place, consumer.committed(place) or 0)
    while not is_stopping():
        watchdog.step()
        found = consumer.poll(timeout_ms=200, max_records=spec.records).get(place, [])
        if found:
            producer.begin_transaction()
            for message in found:
                producer.send(
                    spec.target, message.value, key=message.key, partition=message.partition
                )
            offsets = {place: OffsetAndMetadata(found[-1].offset + 1)}
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            producer.commit_transaction()
            time.sleep(spec.pause_s)
    consumer.close()
    producer.close(timeout=5)
