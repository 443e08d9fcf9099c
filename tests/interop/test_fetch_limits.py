"""How much a fetch gives: per request, per partition, and at least one batch whatever the limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.harness.batches import batch_of, records_of, whole_batches
from tests.harness.model import EARLIEST, Client
from tests.harness.raw import RawConnection
from tests.harness.topics import fetch, fetch_fields, produce, topic_id_of

UNKNOWN_TOPIC_ID = 100
BATCH = batch_of([b"x" * 1_000])


def fill(raw: RawConnection, topic: str, batches: int, partition: int = 0) -> None:
    for _ in range(batches):
        assert produce(raw, topic, BATCH, partition=partition).error_code == 0


def size_of(partition: Any) -> int:
    return len(partition.records or b"")


def test_partition_max_bytes_bounds_a_partition(raw: RawConnection, topic: str) -> None:
    fill(raw, topic, 10)
    answer = fetch(raw, topic, 0, partition_max_bytes=3 * len(BATCH) + 100)
    assert len(list(whole_batches(answer.records))) == 3
    assert size_of(answer) <= 3 * len(BATCH) + 100


@pytest.mark.parametrize("limit", [0, 1, 500])
def test_the_first_batch_comes_whole_even_if_it_is_larger(
    raw: RawConnection, topic: str, limit: int
) -> None:
    fill(raw, topic, 3)
    answer = fetch(raw, topic, 1, partition_max_bytes=limit, max_bytes=limit)
    assert [record.offset for record in records_of(answer.records)] == [1]


def test_max_bytes_bounds_the_request(raw: RawConnection, make_topic: Callable[..., str]) -> None:
    topic = make_topic(4)
    for partition in range(4):
        fill(raw, topic, 5, partition)
    limit = 7 * len(BATCH)
    answer = raw.request(
        "fetch", 12, **fetch_fields({topic: dict.fromkeys(range(4), 0)}, max_bytes=limit)
    )
    sizes = [size_of(each) for each in answer.responses[0].partitions]
    assert sum(sizes) <= limit
    assert sizes[0] == 5 * len(BATCH), "partitions are filled in the order they were asked for"
    assert sizes[3] == 0


def test_only_the_first_partition_with_data_may_exceed_the_limit(
    raw: RawConnection, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(3)
    fill(raw, topic, 2, 1)
    fill(raw, topic, 2, 2)
    answer = raw.request(
        "fetch", 12, **fetch_fields({topic: {0: 0, 1: 0, 2: 0}}, max_bytes=1, partition_max_bytes=1)
    )
    records = [len(records_of(each.records)) for each in answer.responses[0].partitions]
    assert records == [0, 1, 0]


def test_several_topics_and_partitions_in_one_request(
    raw: RawConnection, make_topic: Callable[..., str]
) -> None:
    topics = [make_topic(3) for _ in range(3)]
    sent = raw.request(
        "produce",
        9,
        acks=-1,
        timeout=10_000,
        topic_data=[
            {
                "name": topic,
                "partition_data": [
                    {
                        "index": partition,
                        "records": batch_of([b"%s-%d" % (topic.encode(), partition)]),
                    }
                    for partition in range(3)
                ],
            }
            for topic in topics
        ],
    )
    assert {
        (each.name, part.index): (int(part.error_code), part.base_offset)
        for each in sent.responses
        for part in each.partition_responses
    } == {(topic, partition): (0, 0) for topic in topics for partition in range(3)}

    got = raw.request(
        "fetch", 12, **fetch_fields({topic: dict.fromkeys(range(3), 0) for topic in topics})
    )
    values = {
        (each.topic, part.partition_index): records_of(part.records)[0].value
        for each in got.responses
        for part in each.partitions
    }
    assert values == {
        (topic, partition): b"%s-%d" % (topic.encode(), partition)
        for topic in topics
        for partition in range(3)
    }


def test_one_bad_partition_does_not_spoil_the_others(raw: RawConnection, topic: str) -> None:
    sent = raw.request(
        "produce",
        9,
        acks=-1,
        timeout=10_000,
        topic_data=[
            {
                "name": topic,
                "partition_data": [{"index": 0, "records": BATCH}, {"index": 9, "records": BATCH}],
            },
            {"name": "no-such-topic-anywhere", "partition_data": [{"index": 0, "records": BATCH}]},
        ],
    )
    codes = {
        (each.name, part.index): int(part.error_code)
        for each in sent.responses
        for part in each.partition_responses
    }
    assert codes == {(topic, 0): 0, (topic, 9): 3, ("no-such-topic-anywhere", 0): 3}


def test_topics_by_id(raw: RawConnection, topic: str) -> None:
    fill(raw, topic, 2)
    fields = fetch_fields({topic: {0: 0}})
    fields.pop("replica_id")
    (asked,) = cast(list[dict[str, Any]], fields["topics"])
    del asked["topic"]
    for version in (13, 15, 17):
        asked["topic_id"] = topic_id_of(raw, topic)
        given = fields | ({} if version >= 15 else {"replica_id": -1})
        (answer,) = raw.request("fetch", version, **given).responses
        assert answer.topic_id == asked["topic_id"]
        assert len(records_of(answer.partitions[0].records)) == 2

        asked["topic_id"] = type(asked["topic_id"])(int=12345)
        (answer,) = raw.request("fetch", version, **given).responses
        assert answer.partitions[0].error_code == UNKNOWN_TOPIC_ID


def test_reads_report_the_watermarks(raw: RawConnection, topic: str) -> None:
    fill(raw, topic, 3)
    answer = fetch(raw, topic, 1)
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (3, 3, 0)


def test_read_committed_without_transactions_reads_everything(
    client: Client, raw: RawConnection, topic: str, bootstrap_servers: str
) -> None:
    fill(raw, topic, 5)
    with client.consumer(bootstrap_servers, read_committed=True) as consumer:
        consumer.assign({(topic, 0): EARLIEST})
        assert len(consumer.take(5)) == 5


def test_a_consumer_with_a_small_limit_still_gets_large_messages(
    client: Client, topic: str, bootstrap_servers: str
) -> None:
    with client.producer(bootstrap_servers) as producer:
        for number in range(3):
            producer.send(topic, b"%d" % number * 200_000)
        producer.flush()
    with client.consumer(bootstrap_servers, max_partition_bytes=1_000) as consumer:
        consumer.assign({(topic, 0): EARLIEST})
        assert [len(message.value or b"") for message in consumer.take(3)] == [200_000] * 3
