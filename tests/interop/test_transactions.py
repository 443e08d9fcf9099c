"""Transactions of confluent-kafka: commit, abort, offsets, fencing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

CONSUMED_S = 60


def producer_of(servers: str, transactional_id: str, **settings: object) -> Any:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": transactional_id,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    producer.init_transactions(CONSUMED_S)
    return producer


def consumer_of(servers: str, group: str, **settings: object) -> Any:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def read(servers: str, topic: str, count: int, isolation: str = "read_committed") -> list[bytes]:
    consumer = consumer_of(servers, f"reader-of-{topic}-{isolation}", isolation_level=isolation)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    while len(values) < count:
        (message,) = consumer.consume(1, CONSUMED_S) or (None,)
        assert message is not None, f"only {values}"
        assert message.error() is None
        values.append(message.value())
    assert consumer.consume(1, 0.3) == []
    consumer.close()
    return values


def test_committed_records_are_seen_and_aborted_ones_are_not(
    bootstrap_servers: str, make_topic: Callable[[], str]
) -> None:
    topic = make_topic()
    producer = producer_of(bootstrap_servers, f"committer-{topic}")
    for number in range(6):
        producer.begin_transaction()
        for part in range(3):
            producer.produce(topic, f"{number}-{part}".encode(), partition=0)
        if number % 2:
            producer.abort_transaction(CONSUMED_S)
        else:
            producer.commit_transaction(CONSUMED_S)
    kept = [f"{number}-{part}".encode() for number in (0, 2, 4) for part in range(3)]
    assert read(bootstrap_servers, topic, len(kept)) == kept


def test_a_new_producer_fences_the_old_one(
    bootstrap_servers: str, make_topic: Callable[[], str]
) -> None:
    topic = make_topic()
    zombie = producer_of(bootstrap_servers, f"fenced-{topic}")
    zombie.begin_transaction()
    zombie.produce(topic, b"of the zombie", partition=0)
    zombie.flush(CONSUMED_S)
    producer = producer_of(bootstrap_servers, f"fenced-{topic}")
    producer.begin_transaction()
    producer.produce(topic, b"of the successor", partition=0)
    producer.commit_transaction(CONSUMED_S)
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        zombie.commit_transaction(CONSUMED_S)
    assert refused.value.args[0].fatal()
    assert read(bootstrap_servers, topic, 1) == [b"of the successor"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_are_committed_with_their_transaction(
    bootstrap_servers: str, make_topic: Callable[[], str], protocol: str
) -> None:
    source, target = make_topic(), make_topic()
    feeder = confluent_kafka.Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(20):
        feeder.produce(source, str(number).encode(), partition=0)
    feeder.flush(CONSUMED_S)
    group = f"copies-{target}"
    for attempt, is_committed in enumerate((False, True, False, True)):
        producer = producer_of(bootstrap_servers, group)
        consumer = consumer_of(bootstrap_servers, group, group_protocol=protocol)
        consumer.subscribe([source])
        producer.begin_transaction()
        for _ in range(5 + attempt):
            (message,) = consumer.consume(1, CONSUMED_S)
            producer.produce(target, message.value(), partition=0)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()),
            consumer.consumer_group_metadata(),
            CONSUMED_S,
        )
        if is_committed:
            producer.commit_transaction(CONSUMED_S)
        else:
            producer.abort_transaction(CONSUMED_S)
        consumer.close()
    assert read(bootstrap_servers, target, 14) == [str(number).encode() for number in range(14)]
    reader = consumer_of(bootstrap_servers, group)
    (committed,) = reader.committed([confluent_kafka.TopicPartition(source, 0)], CONSUMED_S)
    assert committed.offset == 14
    reader.close()
