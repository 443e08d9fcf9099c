"""Logs of many segments: reads, seeks and times across their borders."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.harness.batches import batch_of, now_ms, records_of
from tests.harness.model import EARLIEST, Client
from tests.harness.raw import RawConnection
from tests.harness.topics import fetch, produce

BATCHES = 160
PER_BATCH = 5
RECORDS = BATCHES * PER_BATCH
SMALLEST_SEGMENT = {"segment.bytes": "1048576"}


def value(offset: int) -> bytes:
    return b"%06d" % offset * 2_000


@pytest.fixture
def long_topic(raw: RawConnection, make_topic: Callable[..., str]) -> tuple[str, int]:
    """Write ten megabytes in about ten segments; return the topic and its start time."""
    topic = make_topic(configs=SMALLEST_SEGMENT)
    start = now_ms() - BATCHES * 1_000
    for number in range(BATCHES):
        first = number * PER_BATCH
        batch = batch_of(
            [value(first + each) for each in range(PER_BATCH)], timestamp_ms=start + number * 1_000
        )
        assert produce(raw, topic, batch).base_offset == first
    return topic, start


def test_everything_is_read_in_order(
    client: Client, long_topic: tuple[str, int], bootstrap_servers: str
) -> None:
    topic, _ = long_topic
    with client.consumer(bootstrap_servers) as consumer:
        consumer.assign({(topic, 0): EARLIEST})
        messages = consumer.take(RECORDS)
    assert [message.offset for message in messages] == list(range(RECORDS))
    assert all(message.value == value(message.offset) for message in messages)


def test_every_offset_is_found(raw: RawConnection, long_topic: tuple[str, int]) -> None:
    topic, _ = long_topic
    for offset in random.Random(3).sample(range(RECORDS), 200):
        records = records_of(fetch(raw, topic, offset, partition_max_bytes=1).records)
        (found,) = [record for record in records if record.offset == offset]
        assert found.value == value(offset)


def test_every_time_is_found(raw: RawConnection, long_topic: tuple[str, int]) -> None:
    topic, start = long_topic
    for number in random.Random(4).sample(range(BATCHES), 60):
        for shift, expected in ((0, number), (-1, number), (1, number + 1)):
            answer = raw.request(
                "list_offsets",
                7,
                replica_id=-1,
                topics=[
                    {
                        "name": topic,
                        "partitions": [
                            {"partition_index": 0, "timestamp": start + number * 1_000 + shift}
                        ],
                    }
                ],
            )
            (found,) = answer.topics[0].partitions
            assert found.offset == (expected * PER_BATCH if expected < BATCHES else -1)


def test_deleting_records_drops_segments_and_keeps_the_rest(
    raw: RawConnection, long_topic: tuple[str, int]
) -> None:
    topic, _ = long_topic
    cut = RECORDS // 2 + 3
    answer = raw.request(
        "delete_records",
        2,
        timeout=10_000,
        topics=[{"name": topic, "partitions": [{"partition_index": 0, "offset": cut}]}],
    )
    assert answer.topics[0].partitions[0].low_watermark == cut
    assert fetch(raw, topic, cut - 1).error_code == 1
    records = records_of(fetch(raw, topic, cut, partition_max_bytes=1).records)
    assert {record.offset: record.value for record in records}[cut] == value(cut)
