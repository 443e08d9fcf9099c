"""DeleteRecords moves the start of the log; what lies before it is gone for every reader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.batches import batch_of, records_of
from tests.harness.model import EARLIEST, AdminError, Client
from tests.harness.raw import RawConnection
from tests.harness.topics import fetch, produce

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
HIGH_WATERMARK = -1


def fill(raw: RawConnection, topic: str, count: int) -> None:
    for number in range(count):
        assert produce(raw, topic, batch_of([b"%d" % number])).error_code == 0


def delete(raw: RawConnection, topic: str, offset: int, partition: int = 0) -> Any:
    answer = raw.request(
        "delete_records",
        2,
        timeout=10_000,
        topics=[{"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}],
    )
    return answer.topics[0].partitions[0]


def test_clients_delete_records(
    client: Client, raw: RawConnection, topic: str, bootstrap_servers: str
) -> None:
    fill(raw, topic, 10)
    with client.admin(bootstrap_servers) as admin:
        assert admin.delete_records(topic, 0, 4) == 4
        with pytest.raises(AdminError) as caught:
            admin.delete_records(topic, 0, 11)
        assert caught.value.code == OFFSET_OUT_OF_RANGE
    with client.consumer(bootstrap_servers) as consumer:
        assert consumer.watermarks(topic, 0) == (4, 10)
        consumer.assign({(topic, 0): EARLIEST})
        assert [message.offset for message in consumer.take(6)] == [4, 5, 6, 7, 8, 9]


def test_reads_before_the_start_are_refused(raw: RawConnection, topic: str) -> None:
    fill(raw, topic, 5)
    assert delete(raw, topic, 3).low_watermark == 3
    assert fetch(raw, topic, 2).error_code == OFFSET_OUT_OF_RANGE
    answer = fetch(raw, topic, 3)
    assert answer.log_start_offset == 3
    assert [record.offset for record in records_of(answer.records)] == [3, 4]


def test_up_to_the_high_watermark(raw: RawConnection, topic: str) -> None:
    fill(raw, topic, 5)
    assert delete(raw, topic, HIGH_WATERMARK).low_watermark == 5
    answer = fetch(raw, topic, 5)
    assert (answer.error_code, answer.log_start_offset) == (0, 5)
    assert produce(raw, topic, batch_of([b"next"])).base_offset == 5


def test_deleting_less_than_was_deleted_changes_nothing(raw: RawConnection, topic: str) -> None:
    fill(raw, topic, 5)
    assert delete(raw, topic, 3).low_watermark == 3
    again = delete(raw, topic, 1)
    assert (again.error_code, again.low_watermark) == (0, 3)


def test_inside_a_batch(raw: RawConnection, topic: str) -> None:
    produce(raw, topic, batch_of([b"a", b"b", b"c", b"d"]))
    assert delete(raw, topic, 2).low_watermark == 2
    assert fetch(raw, topic, 1).error_code == OFFSET_OUT_OF_RANGE
    assert records_of(fetch(raw, topic, 2).records)[-1].offset == 3


def test_refusals(raw: RawConnection, topic: str, unused_name: str) -> None:
    fill(raw, topic, 2)
    beyond = delete(raw, topic, 3)
    assert (beyond.error_code, beyond.low_watermark) == (OFFSET_OUT_OF_RANGE, -1)
    assert delete(raw, topic, -2).error_code == OFFSET_OUT_OF_RANGE
    assert delete(raw, topic, 0, partition=9).error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert delete(raw, unused_name, 0).error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_a_compacted_topic_keeps_its_records(
    raw: RawConnection,
    make_topic: Callable[..., str],
) -> None:
    topic = make_topic(configs={"cleanup.policy": "compact"})
    fill(raw, topic, 2)
    assert delete(raw, topic, 1).error_code == 44
