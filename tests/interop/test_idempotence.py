"""Idempotent producers: duplicates answered with the first offset, gaps and old epochs refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.batches import batch_of, records_of
from tests.harness.model import EARLIEST, Client
from tests.harness.raw import RawConnection
from tests.harness.topics import fetch, produce

OUT_OF_ORDER_SEQUENCE_NUMBER = 45
DUPLICATE_SEQUENCE_NUMBER = 46
INVALID_PRODUCER_EPOCH = 47
INT32_MAX = 2**31 - 1


def new_producer_id(raw: RawConnection) -> int:
    answer = raw.request(
        "init_producer_id",
        4,
        transactional_id=None,
        transaction_timeout=60_000,
        producer_id=-1,
        producer_epoch=-1,
    )
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    producer_id: int = answer.producer_id
    return producer_id


def send(
    raw: RawConnection,
    topic: str,
    producer_id: int,
    sequence: int,
    count: int = 1,
    *,
    epoch: int = 0,
) -> Any:
    return produce(
        raw,
        topic,
        batch_of(
            [b"%d" % (sequence + number) for number in range(count)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        ),
    )


def test_clients_with_idempotence(
    client: Client, make_topic: Callable[..., str], bootstrap_servers: str
) -> None:
    topic = make_topic(3)
    with client.producer(bootstrap_servers, idempotent=True) as producer:
        for number in range(600):
            producer.send(topic, b"%d" % number, partition=number % 3)
        acks = producer.flush()
    assert [ack.error for ack in acks] == [0] * 600
    assert [ack.offset for ack in acks] == [number // 3 for number in range(600)]
    with client.consumer(bootstrap_servers) as consumer:
        consumer.assign({(topic, index): EARLIEST for index in range(3)})
        messages = consumer.take(600)
    for index in range(3):
        values = [message.value for message in messages if message.partition == index]
        assert values == [b"%d" % number for number in range(index, 600, 3)]


def test_producer_ids_are_never_given_twice(raw: RawConnection) -> None:
    ids = [new_producer_id(raw) for _ in range(50)]
    assert len(set(ids)) == 50


def test_a_duplicate_is_answered_with_the_original_offset(raw: RawConnection, topic: str) -> None:
    producer_id = new_producer_id(raw)
    assert send(raw, topic, producer_id, 0, 3).base_offset == 0
    assert send(raw, topic, producer_id, 3, 2).base_offset == 3
    for _ in range(2):
        assert (
            send(raw, topic, producer_id, 0, 3).error_code,
            send(raw, topic, producer_id, 0, 3).base_offset,
        ) == (0, 0)
        assert send(raw, topic, producer_id, 3, 2).base_offset == 3
    assert len(records_of(fetch(raw, topic, 0).records)) == 5


def test_the_last_five_batches_are_remembered(raw: RawConnection, topic: str) -> None:
    producer_id = new_producer_id(raw)
    for sequence in range(6):
        assert send(raw, topic, producer_id, sequence).base_offset == sequence
    for sequence in range(1, 6):
        assert send(raw, topic, producer_id, sequence).base_offset == sequence
    forgotten = send(raw, topic, producer_id, 0)
    assert forgotten.error_code in (OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER)
    assert len(records_of(fetch(raw, topic, 0).records)) == 6


@pytest.mark.parametrize("sequence", [2, 5, 1_000])
def test_a_gap_is_refused(raw: RawConnection, topic: str, sequence: int) -> None:
    producer_id = new_producer_id(raw)
    assert send(raw, topic, producer_id, 0).error_code == 0
    assert send(raw, topic, producer_id, sequence).error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(raw, topic, producer_id, 1).error_code == 0


def test_a_new_epoch_starts_at_zero_and_ends_the_old_one(raw: RawConnection, topic: str) -> None:
    producer_id = new_producer_id(raw)
    assert send(raw, topic, producer_id, 0).error_code == 0
    assert send(raw, topic, producer_id, 1, epoch=1).error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(raw, topic, producer_id, 0, epoch=1).error_code == 0
    assert send(raw, topic, producer_id, 1, epoch=0).error_code == INVALID_PRODUCER_EPOCH


def test_a_producer_the_partition_does_not_know_starts_anywhere(
    raw: RawConnection, topic: str
) -> None:
    assert send(raw, topic, new_producer_id(raw), 123).error_code == 0


def test_sequence_numbers_wrap(raw: RawConnection, topic: str) -> None:
    producer_id = new_producer_id(raw)
    assert send(raw, topic, producer_id, INT32_MAX - 1, 2).base_offset == 0
    assert send(raw, topic, producer_id, 0, 1).base_offset == 2
    assert send(raw, topic, producer_id, INT32_MAX - 1, 2).base_offset == 0


def test_producers_do_not_disturb_each_other(raw: RawConnection, topic: str) -> None:
    first, second = new_producer_id(raw), new_producer_id(raw)
    for sequence in range(4):
        assert send(raw, topic, first, sequence).error_code == 0
        assert send(raw, topic, second, sequence).error_code == 0
    assert send(raw, topic, first, 3).base_offset == 6
    assert send(raw, topic, second, 3).base_offset == 7


def test_an_epoch_is_bumped_for_the_producer_that_has_it(raw: RawConnection) -> None:
    producer_id = new_producer_id(raw)
    answer = raw.request(
        "init_producer_id",
        4,
        transactional_id=None,
        transaction_timeout=60_000,
        producer_id=producer_id,
        producer_epoch=0,
    )
    assert answer.error_code == 0
    assert answer.producer_epoch in (0, 1)


def test_describe_producers(raw: RawConnection, topic: str) -> None:
    producer_id = new_producer_id(raw)
    send(raw, topic, producer_id, 0, 4)
    answer = raw.request(
        "describe_producers", 0, topics=[{"name": topic, "partition_indexes": [0, 8]}]
    )
    known, unknown = sorted(answer.topics[0].partitions, key=lambda each: each.partition_index)
    (active,) = known.active_producers
    assert (active.producer_id, active.producer_epoch, active.last_sequence) == (producer_id, 0, 3)
    assert active.current_txn_start_offset == -1
    assert unknown.error_code == 3
