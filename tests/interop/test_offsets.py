"""Finding a place in the log: by offset, by time, earliest, latest, largest timestamp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.batches import batch_of, now_ms
from tests.harness.deadline import Deadline
from tests.harness.model import EARLIEST, LATEST, Client
from tests.harness.raw import RawConnection
from tests.harness.topics import fetch, produce

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_REQUEST = 42
UNKNOWN_LEADER_EPOCH = 75
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5


def fill(raw: RawConnection, topic: str, count: int, start_ms: int, *, partition: int = 0) -> None:
    """Write batches of one record, a second apart."""
    for number in range(count):
        batch = batch_of([b"%d" % number], timestamp_ms=start_ms + number * 1000)
        assert produce(raw, topic, batch, partition=partition).error_code == 0


def list_offsets(
    raw: RawConnection,
    topic: str,
    timestamp: int,
    *,
    partition: int = 0,
    leader_epoch: int = -1,
    version: int = 9,
) -> Any:
    answer = raw.request(
        "list_offsets",
        version,
        replica_id=-1,
        isolation_level=0,
        topics=[
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": partition,
                        "timestamp": timestamp,
                        "current_leader_epoch": leader_epoch,
                    }
                ],
            }
        ],
    )
    return answer.topics[0].partitions[0]


def test_seek_by_offset_back_and_forth(
    client: Client, raw: RawConnection, topic: str, bootstrap_servers: str
) -> None:
    fill(raw, topic, 50, now_ms() - 100_000)
    with client.consumer(bootstrap_servers) as consumer:
        consumer.assign({(topic, 0): 40})
        assert consumer.take(1)[0].offset == 40
        for offset in (0, 49, 25, 7):
            consumer.seek(topic, 0, offset)
            assert consumer.take(1)[0].offset == offset


def test_earliest_and_latest(
    client: Client, raw: RawConnection, topic: str, bootstrap_servers: str
) -> None:
    fill(raw, topic, 5, now_ms() - 10_000)
    with client.consumer(bootstrap_servers) as consumer:
        assert consumer.watermarks(topic, 0) == (0, 5)
        consumer.assign({(topic, 0): EARLIEST})
        assert [message.offset for message in consumer.take(5)] == [0, 1, 2, 3, 4]


def test_latest_sees_only_what_comes_after(
    client: Client, raw: RawConnection, topic: str, bootstrap_servers: str
) -> None:
    fill(raw, topic, 5, now_ms() - 10_000)
    with client.consumer(bootstrap_servers) as consumer:
        consumer.assign({(topic, 0): LATEST})
        # The position is looked up while polling, so keep writing until something arrives.
        deadline = Deadline(20)
        messages = consumer.poll(0.2)
        while not messages and not deadline.passed:
            produce(raw, topic, batch_of([b"new"]))
            messages = consumer.poll(0.2)
    assert messages
    assert {message.value for message in messages} == {b"new"}


def test_offsets_for_times(
    client: Client, raw: RawConnection, make_topic: Callable[..., str], bootstrap_servers: str
) -> None:
    topic = make_topic(2)
    start = now_ms() - 100_000
    fill(raw, topic, 20, start)
    with client.consumer(bootstrap_servers) as consumer:

        def offset_at(time_ms: int) -> int | None:
            return consumer.offsets_for_times({(topic, 0): time_ms})[(topic, 0)]

        assert offset_at(start - 5_000) == 0
        assert offset_at(start) == 0
        assert offset_at(start + 1) == 1
        assert offset_at(start + 10_000) == 10
        assert offset_at(start + 10_001) == 11
        assert offset_at(start + 19_000) == 19
        # Past the end librdkafka answers "end" and the others nothing: no offset either way.
        assert offset_at(start + 19_001) is None
        assert consumer.offsets_for_times({(topic, 1): start})[(topic, 1)] is None


def test_offsets_for_times_inside_a_batch(raw: RawConnection, topic: str) -> None:
    start = now_ms() - 100_000
    produce(raw, topic, batch_of([b"a"] * 10, timestamp_ms=start))
    produce(raw, topic, batch_of([b"b" * 99] * 10, timestamp_ms=start + 500, codec="gzip"))
    found = list_offsets(raw, topic, start + 1)
    assert (found.offset, found.timestamp) == (10, start + 500)
    assert found.leader_epoch >= 0


def test_seek_by_time_then_read(
    client: Client, raw: RawConnection, topic: str, bootstrap_servers: str
) -> None:
    start = now_ms() - 100_000
    fill(raw, topic, 20, start)
    with client.consumer(bootstrap_servers) as consumer:
        offset = consumer.offsets_for_times({(topic, 0): start + 12_345})[(topic, 0)]
        assert offset == 13
        consumer.assign({(topic, 0): offset})
        assert consumer.take(1)[0].timestamp_ms == start + 13_000


def test_special_timestamps(raw: RawConnection, topic: str) -> None:
    start = now_ms() - 100_000
    for offset, shift in enumerate((0, 9_000, 3_000)):
        produce(raw, topic, batch_of([b"%d" % offset], timestamp_ms=start + shift))
    assert list_offsets(raw, topic, LATEST).offset == 3
    assert list_offsets(raw, topic, EARLIEST).offset == 0
    assert list_offsets(raw, topic, EARLIEST_LOCAL).offset == 0
    largest = list_offsets(raw, topic, MAX_TIMESTAMP)
    assert (largest.offset, largest.timestamp) == (1, start + 9_000)
    assert list_offsets(raw, topic, LATEST_TIERED).offset == -1


def test_special_timestamps_of_an_empty_partition(raw: RawConnection, topic: str) -> None:
    assert list_offsets(raw, topic, LATEST).offset == 0
    assert list_offsets(raw, topic, EARLIEST).offset == 0
    nothing = list_offsets(raw, topic, MAX_TIMESTAMP)
    assert (nothing.error_code, nothing.offset, nothing.timestamp) == (0, -1, -1)
    nothing = list_offsets(raw, topic, now_ms())
    assert (nothing.error_code, nothing.offset, nothing.timestamp) == (0, -1, -1)


def test_leader_epochs_are_checked(raw: RawConnection, topic: str) -> None:
    assert list_offsets(raw, topic, LATEST, leader_epoch=0).error_code == 0
    ahead = list_offsets(raw, topic, LATEST, leader_epoch=99)
    assert ahead.error_code == UNKNOWN_LEADER_EPOCH


def test_the_same_partition_twice_is_refused(raw: RawConnection, topic: str) -> None:
    asked = {"partition_index": 0, "timestamp": LATEST}
    answer = raw.request(
        "list_offsets", 7, replica_id=-1, topics=[{"name": topic, "partitions": [asked, asked]}]
    )
    codes = {int(each.error_code) for each in answer.topics[0].partitions}
    assert codes == {INVALID_REQUEST}


def test_unknown_partition(raw: RawConnection, topic: str) -> None:
    assert list_offsets(raw, topic, LATEST, partition=7).error_code == UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("offset", [6, 1_000_000, -1])
def test_offsets_outside_the_log_are_refused(raw: RawConnection, topic: str, offset: int) -> None:
    fill(raw, topic, 5, now_ms())
    answer = fetch(raw, topic, offset)
    assert answer.error_code == OFFSET_OUT_OF_RANGE
    assert not answer.records


def test_a_consumer_past_the_end_starts_over_where_it_is_told(
    client: Client, raw: RawConnection, topic: str, bootstrap_servers: str
) -> None:
    fill(raw, topic, 5, now_ms())
    with client.consumer(bootstrap_servers, reset="earliest") as consumer:
        consumer.assign({(topic, 0): 1_000})
        assert consumer.take(1)[0].offset == 0


def test_end_offset_of_leader_epochs(raw: RawConnection, topic: str) -> None:
    fill(raw, topic, 3, now_ms())

    def end_of(epoch: int, current: int = -1) -> Any:
        answer = raw.request(
            "offset_for_leader_epoch",
            4,
            replica_id=-1,
            topics=[
                {
                    "topic": topic,
                    "partitions": [
                        {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
                    ],
                }
            ],
        )
        return answer.topics[0].partitions[0]

    found = end_of(0)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, 0, 3)
    beyond = end_of(9)
    assert (beyond.error_code, beyond.leader_epoch, beyond.end_offset) == (0, -1, -1)
    assert end_of(0, current=9).error_code == UNKNOWN_LEADER_EPOCH
